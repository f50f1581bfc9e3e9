// Which sequences of a scheduler hold state: who comes in, who gives way, who gets memory.
#include <algorithm>

#include "base/result.h"
#include "engine/order.h"
#include "engine/scheduler.h"

namespace cadre {
namespace {

std::int64_t whole_pages(std::int64_t tokens) { return (tokens + kPageSize - 1) / kPageSize; }

}  // namespace

Sequence* Scheduler::next_waiting(const Skip& skip) const {
  Sequence* best = nullptr;
  for (const Owned& sequence : waiting_) {
    if (sequence->cancelled || (best != nullptr && !goes_before(*sequence, *best))) continue;
    const auto no_place = skip.flows.find(sequence->flow);
    if (no_place != skip.flows.end() && sequence->ask().priority >= no_place->second) continue;
    if (sequence->ask().adapter != nullptr && skip.adapters.contains(sequence->ask().adapter.get())) continue;
    if (!skip.sequences.contains(sequence.get())) best = sequence.get();
  }
  return best;
}

Sequence* Scheduler::yields_place(const Sequence& sequence) const {
  if (keep_all_) return nullptr;
  const int share = std::max(1, options_.max_sequences / std::max(1, fair_.active()));
  Sequence* victim = nullptr;
  for (const Owned& other : running_) {
    const bool more_urgent = sequence.ask().priority < other->ask().priority;
    // A flow below half its share takes a place from one above its own. At every small difference, places would change
    // hands all the time, each change computing something again.
    const bool fairer = sequence.ask().priority == other->ask().priority && 2 * sequence.flow->running < share &&
                        other->flow->running > share;
    if ((more_urgent || fairer) && (victim == nullptr || yields_before(*other, *victim))) victim = other.get();
  }
  return victim;
}

bool Scheduler::try_admit(Sequence& sequence) {
  const Sequence::Ask& ask = sequence.ask();
  const Result<bool> usable = adapters_.acquire(runner_, ask.adapter);
  if (!usable.ok()) broken_.push_back({&sequence, usable.status()});
  if (!usable.ok() || !*usable) return false;

  const std::int64_t length = static_cast<std::int64_t>(sequence.ids().size());
  PrefixCache::Match match;
  const bool caching = options_.prefix_caching && !keep_all_ && !ask.prompt_logprobs;
  if (caching) {
    const PrefixCache::Key key{ask.adapter == nullptr ? 0 : ask.adapter->info.version, ask.cache_salt,
                               runner_.model().generation()};
    // One token at least is computed: its logits are wanted.
    match = cache_.find(key, sequence.ids(), length - 1);
  }
  // Room for all that is known and a token more; an answer grows page by page.
  const std::int64_t want = keep_all_ ? ask.capacity : std::min(length + 1, ask.capacity);
  sequence.state.pages = match.pages;
  const std::int64_t missing = whole_pages(want) - static_cast<std::int64_t>(match.pages.size());
  // Nothing is given up for one that does not fit all the same.
  const bool fits =
      missing <= runner_.pool().free_pages() || missing <= runner_.pool().free_pages() + cache_.idle_pages();
  if (fits) cache_.make_room(missing);
  if (!fits || !runner_.pool().reserve(sequence.state, want)) {
    runner_.pool().release(sequence.state);
    cache_.leave(match.at);
    adapters_.release(ask.adapter);
    return false;
  }
  sequence.state.length = match.tokens;
  sequence.computed = std::max(sequence.computed, match.tokens);
  if (match.snapshot >= 0) runner_.pool().copy_slot(runner_.exec(), match.snapshot, sequence.state.slot);
  sequence.node = match.at;
  sequence.cached_pages = static_cast<std::int64_t>(match.pages.size());
  if (caching && sequence.admitted == 0) {
    queries_ += length;
    hits_ += match.tokens;
    sequence.from_cache = match.tokens;
  }
  sequence.snapshot_at.clear();
  if (caching && recurrent_) {
    // Where this prompt parted from an earlier one, others will; and its own end, for when it is asked again or goes
    // on.
    for (const std::int64_t at : {match.common, (sequence.prompt_tokens() - 1) / kPageSize * kPageSize}) {
      if (at > match.tokens && (sequence.snapshot_at.empty() || at > sequence.snapshot_at.back())) {
        sequence.snapshot_at.push_back(at);
      }
    }
  }
  return true;
}

// An earlier one of its flow is computing what this one begins with: choices of one request, or the same prompt asked
// again. It starts from the cache once the other is through, instead of computing the same beside it. Not a later one:
// while such ones keep coming, it would wait for ever.
bool Scheduler::may_start_from_twin(const Sequence& sequence) const {
  const Sequence::Ask& ask = sequence.ask();
  if (!options_.prefix_caching || keep_all_ || ask.prompt_logprobs) return false;
  const std::int64_t shared = (static_cast<std::int64_t>(sequence.ids().size()) - 1) / kPageSize * kPageSize;
  const auto beginning = sequence.ids().first(static_cast<std::size_t>(shared));
  return std::any_of(running_.begin(), running_.end(), [&](const Owned& other) {
    return other->id() < sequence.id() && other->flow == sequence.flow && other->node != nullptr && !other->cancelled &&
           other->cached_pages * kPageSize < shared && other->prompt_tokens() >= shared &&
           other->ask().priority <= ask.priority && other->ask().adapter == ask.adapter &&
           other->ask().cache_salt == ask.cache_salt &&
           std::equal(beginning.begin(), beginning.end(), other->ids().begin());
  });
}

// What the loader has read comes into memory; where it cannot be used, all that wait for it end.
const LoadedAdapter* Scheduler::take_read_adapter() {
  std::optional<AdapterLoader::Done> done = loader_.take();
  if (!done) return nullptr;
  const Status status = adapters_.bring_into_memory(*done->adapter, std::move(done->read));
  if (status.ok()) return nullptr;
  for (const Owned& sequence : waiting_) {
    if (sequence->ask().adapter == done->adapter) broken_.push_back({sequence.get(), status});
  }
  return done->adapter.get();
}

void Scheduler::admit() {
  Skip skip;
  if (const LoadedAdapter* broken = take_read_adapter(); broken != nullptr) skip.adapters.insert(broken);
  const Sequence* starved = nullptr;  // the neediest that waits for an adapter slot
  while (Sequence* next = next_waiting(skip)) {
    // Slots would never come free if adapters that were served more went on taking new requests.
    if (starved != nullptr && next->ask().adapter != nullptr && next->flow->running > 0 &&
        next->flow->served > starved->flow->served) {
      skip.sequences.insert(next);
      continue;
    }
    // Asked before anybody gives way for it. One on disk is read first, in turn; the neediest also while it waits for
    // a slot, if that takes no memory from others.
    const bool room = adapters_.has_room(next->ask().adapter);
    if (adapters_.on_disk(next->ask().adapter) && !loader_.busy() &&
        (room || (starved == nullptr && adapters_.has_memory()))) {
      loader_.start(next->ask().adapter);
    }
    if (!room || adapters_.on_disk(next->ask().adapter)) {
      skip.adapters.insert(next->ask().adapter.get());
      if (!room && starved == nullptr) starved = next;
      continue;
    }
    Sequence* victim = nullptr;
    if (static_cast<int>(running_.size()) >= options_.max_sequences) {
      victim = yields_place(*next);
      if (victim == nullptr) {
        skip.flows[next->flow] = next->ask().priority;  // nor is there a place for its others
        continue;
      }
    }
    if (may_start_from_twin(*next)) {
      // With all others that wait for one, since each look for the next goes through all that wait.
      for (const Owned& other : waiting_) {
        if (other->flow == next->flow && may_start_from_twin(*other)) skip.sequences.insert(other.get());
      }
      continue;
    }
    if (victim != nullptr) preempt(victim);
    if (!try_admit(*next)) {
      // What cannot be read for one cannot be read for the others either.
      if (!broken_.empty() && broken_.back().sequence == next) {
        const Status why = broken_.back().why;
        skip.adapters.insert(next->ask().adapter.get());
        for (const Owned& other : waiting_) {
          if (other.get() != next && other->ask().adapter == next->ask().adapter) broken_.push_back({other.get(), why});
        }
        continue;
      }
      break;  // no memory: those behind it would only take what it waits for
    }
    next->mark_admitted(++admissions_);
    --next->flow->waiting;
    ++next->flow->running;
    const auto it = std::find_if(waiting_.begin(), waiting_.end(), [&](const Owned& s) { return s.get() == next; });
    running_.push_back(std::move(*it));
    waiting_.erase(it);
  }
  if (starved != nullptr) free_slot_for(*starved);
}

// The adapter that was served most leaves its slot, with all its sequences, once it is this many rows ahead.
void Scheduler::free_slot_for(const Sequence& starved) {
  constexpr double kAhead = 1024;
  if (keep_all_ || starved.flow->running > 0) return;
  const Sequence* most = nullptr;
  for (const Owned& s : running_) {
    if (s->ask().adapter == nullptr || s->ask().adapter->info.pinned || s->ask().priority < starved.ask().priority) {
      continue;
    }
    if (most == nullptr || s->flow->served > most->flow->served) most = s.get();
  }
  if (most == nullptr || most->flow->served < starved.flow->served + kAhead) return;
  // Read first, even beyond the limit of what is in memory: it is in its slot soon after. Who gives way earlier would
  // come back before it is there.
  if (adapters_.on_disk(starved.ask().adapter)) {
    if (!loader_.busy()) loader_.start(starved.ask().adapter);
    return;
  }
  const AdapterRef adapter = most->ask().adapter;
  for (std::size_t i = running_.size(); i-- > 0;) {
    if (running_[i]->ask().adapter == adapter) preempt(running_[i].get());
  }
}

void Scheduler::release(Sequence& sequence) {
  cache_.leave(sequence.node);
  sequence.node = nullptr;
  sequence.cached_pages = 0;
  runner_.pool().release(sequence.state);
  adapters_.release(sequence.ask().adapter);
}

void Scheduler::preempt(Sequence* sequence) {
  ++preemptions_;
  release(*sequence);
  --sequence->flow->running;
  ++sequence->flow->waiting;
  const auto it = std::find_if(running_.begin(), running_.end(), [&](const Owned& s) { return s.get() == sequence; });
  waiting_.push_front(std::move(*it));
  running_.erase(it);
}

bool Scheduler::grow(Sequence& sequence, std::int64_t length, const std::vector<Part>& planned) {
  const auto is_planned = [&](const Sequence* s) {
    return std::any_of(planned.begin(), planned.end(), [&](const Part& part) { return part.sequence == s; });
  };
  while (true) {
    cache_.make_room(whole_pages(length) - static_cast<std::int64_t>(sequence.state.pages.size()));
    if (runner_.pool().reserve(sequence.state, length)) return true;
    Sequence* victim = nullptr;
    for (const Owned& other : running_) {
      if (!is_planned(other.get()) && (victim == nullptr || yields_before(*other, *victim))) victim = other.get();
    }
    CADRE_CHECK(victim != nullptr && (victim != &sequence || running_.size() > 1), "one sequence does not fit");
    const bool itself = victim == &sequence;
    preempt(victim);
    if (itself) return false;
  }
}

}  // namespace cadre
