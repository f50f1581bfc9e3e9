#include "moe/devices.h"

namespace cadre {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// A server of one socket with 32 cores, memory channels all filled. The instruction sets contain each other. The rate
// is that of the widest multiplication that takes BF16 (or float32, where there is none): flops a cycle and core, times
// the clock under such load.
DeviceCaps cpu(const char* name, int instruction_sets, double memory_gb_s, double flops_a_cycle, double ghz) {
  constexpr int kCores = 32;
  return {.name = name,
          .kind = DeviceKind::kCpu,
          .avx2 = instruction_sets >= 1,
          .avx512 = instruction_sets >= 2,
          .avx512_bf16 = instruction_sets >= 3,
          .amx_bf16 = instruction_sets >= 4,
          .cores = kCores,
          .memory_gb_s = memory_gb_s,
          .bf16_gflop_s = kCores * flops_a_cycle * ghz,
          .memory_bytes = 256 * kGiB,
          .described = true};
}

// The SXM boards of the data sheets: dense BF16 rate, 132 multiprocessors, 227 KiB of shared memory for one block.
DeviceCaps hopper(const char* name, double memory_gb_s, std::int64_t memory_bytes) {
  return {.name = name,
          .kind = DeviceKind::kCuda,
          .cores = 132,
          .sm = 90,
          .shared_memory_per_block = 227 * 1024,
          .memory_gb_s = memory_gb_s,
          .bf16_gflop_s = 989.4e3,
          .memory_bytes = memory_bytes,
          .described = true};
}

}  // namespace

const std::vector<DeviceCaps>& built_in_devices() {
  static const std::vector<DeviceCaps> kList = {
      cpu("cpu-avx2", 1, 204.8, 32, 2.8),          // 8 channels DDR4-3200
      cpu("cpu-avx512", 2, 204.8, 64, 2.4),        // 8 channels DDR4-3200
      cpu("cpu-avx512-bf16", 3, 460.8, 128, 2.4),  // 12 channels DDR5-4800
      cpu("cpu-amx", 4, 307.2, 1024, 2.0),         // 8 channels DDR5-4800
      hopper("h100", 3350, 80 * kGiB),
      hopper("h200", 4800, 141 * kGiB),
  };
  return kList;
}

}  // namespace cadre
