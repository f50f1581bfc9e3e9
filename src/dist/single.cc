#include <cstring>

#include "dist/communicator.h"

namespace cadre {
namespace {

void copy(const Exec& exec, const View& out, const View& x) {
  exec.launch([out, x] {
    if (x.bytes() != 0) std::memcpy(out.data, x.data, static_cast<std::size_t>(x.bytes()));
  });
}

class Single final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(const Exec&, View) override {}
  void all_gather(const Exec& exec, View out, View x) override { copy(exec, out, x); }
  void reduce_scatter(const Exec& exec, View out, View x) override { copy(exec, out, x); }
  void all_to_all_v(const Exec& exec, View out, View x, std::vector<std::int64_t>, std::vector<std::int64_t>) override {
    copy(exec, out, x);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<Single>(); }

}  // namespace cadre
