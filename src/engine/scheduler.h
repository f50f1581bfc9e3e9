// Scheduler: which sequences hold state (admission.cc), and which rows go into the next batch. Continuous batching:
// sequences join and leave between any two steps, prompts are computed in chunks beside decode steps.
//
// Order: lower priority numbers first, then the flow (tenant and adapter) that was served least, then arrival. Who is
// asked to give way loses nothing: its tokens stay, and its state is computed again, from the prefix cache as far as
// that still has it.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/adapter_loader.h"
#include "engine/adapter_set.h"
#include "engine/fair_share.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace cadre {

struct SchedulerOptions {
  int max_sequences = 8;          // in one batch
  std::int64_t max_tokens = 512;  // rows of one batch
  std::int64_t max_logit_rows = 32;
  bool prefix_caching = true;
};

class Scheduler {
 public:
  // A sequence's part of a batch.
  struct Part {
    Sequence* sequence = nullptr;
    std::int64_t rows = 0;
    bool draws = false;       // its last row's logits give the next token
    bool all_logits = false;  // every row's logits are wanted, for prompt_logprobs
    std::int64_t logit_rows() const { return all_logits ? rows : draws ? 1 : 0; }
  };
  // A sequence that cannot go on.
  struct Failure {
    Sequence* sequence = nullptr;
    Status why;
  };

  Scheduler(const SchedulerOptions& options, Runner& runner, AdapterSet& adapters, AdapterLoader& loader);
  ~Scheduler();

  void add(std::unique_ptr<Sequence> sequence);
  bool cancel(std::uint64_t id);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // The next batch. Every sequence in it has room for its rows.
  std::vector<Part> plan();
  // After the batch ran: keeps what others may use, and counts.
  void ran(const std::vector<Part>& parts);
  // To be finished before the next plan: cancelled or late.
  std::vector<Failure> ended() const;
  // To be finished after it: their adapter could not be brought back. They are in no part.
  std::vector<Failure> broken() { return std::exchange(broken_, {}); }
  // The sequence goes, with all it holds.
  void finish(Sequence* sequence);

  // Versions of adapters that nobody can use any more leave the cache.
  void collect_adapters();
  // Frees pages that only the prefix cache holds, for a sequence outside the scheduler.
  void make_room(std::int64_t pages) { cache_.make_room(pages); }
  void add_to(EngineStats* stats) const;

 private:
  using Owned = std::unique_ptr<Sequence>;
  void admit();
  const LoadedAdapter* take_read_adapter();  // null, or one that cannot be used
  void free_slot_for(const Sequence& starved);
  bool try_admit(Sequence& sequence);
  bool may_start_from_twin(const Sequence& sequence) const;
  // What cannot be admitted in this step.
  struct Skip {
    std::set<const LoadedAdapter*> adapters;  // have no slot
    std::set<const Sequence*> sequences;
    std::map<const Flow*, int> flows;  // from this priority number on
  };
  Sequence* next_waiting(const Skip& skip) const;
  // The one that gives way for `sequence` to get a place in the batch; null where nobody has to.
  Sequence* yields_place(const Sequence& sequence) const;
  bool grow(Sequence& sequence, std::int64_t length, const std::vector<Part>& planned);
  void preempt(Sequence* sequence);
  void release(Sequence& sequence);
  void plan_prompts(std::vector<Part>* parts, std::int64_t room, std::int64_t limited);
  bool above_share(const Flow& flow) const;  // has more than its part of the places in a batch
  std::int64_t chunk(const Sequence& sequence, std::int64_t rows) const;

  SchedulerOptions options_;
  Runner& runner_;
  AdapterSet& adapters_;
  AdapterLoader& loader_;
  bool keep_all_;  // rotary embeddings depend on the length: nothing is shared, nobody gives way
  bool recurrent_;
  PrefixCache cache_;
  FairShare fair_;
  std::deque<Owned> waiting_;
  std::vector<Owned> running_;  // in order of admission
  std::vector<Failure> broken_;
  std::uint64_t admissions_ = 0;
  std::int64_t contended_until_ = 0;  // step up to which several flows are to be expected
  int paused_ = 0;                    // steps in a row that left out answers
  int passed_over_ = 0;               // steps in a row that left out prompts
  std::int64_t queries_ = 0, hits_ = 0, preemptions_ = 0, steps_ = 0, rows_ = 0, prompt_rows_ = 0, generated_ = 0;
};

}  // namespace cadre
