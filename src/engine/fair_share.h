// FairShare: whose turn it is. Requests belong to flows, one for each tenant and adapter; the flow that was served
// least goes first. Counters of service as in "Fairness in Serving Large Language Models" (Sheng et al. 2024): a flow
// that was idle starts at the least of the active ones, so nobody saves up a claim by staying away.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace cadre {

struct Flow {
  double served = 0;  // rows computed for it
  int waiting = 0, running = 0;
  bool active() const { return waiting + running > 0; }
};

class FairShare {
 public:
  // The flow of a request that begins to wait. It stays valid while it is active.
  Flow* join(const std::string& tenant, const std::string& adapter);
  // To be called when a request ends, after its count went down.
  void tidy();
  int active() const;  // flows

 private:
  double least() const;  // of the active flows; the most of all where none is active

  std::map<std::pair<std::string, std::string>, std::unique_ptr<Flow>> flows_;
};

}  // namespace cadre
