// What a tenant may use at a time, and when the server as a whole takes no more. Buckets fill steadily up to one
// minute's worth, so that a tenant that was quiet may be fast for a moment. State is kept by tenant and outlives a
// reload of the keys. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/access/access.h"
#include "server/access/refusal.h"

namespace cadre::server {

struct LimiterOptions {
  int max_running = 8;    // sequences the engine runs at a time: EngineOptions::max_num_seqs
  int max_queued = 1024;  // sequences that wait beyond those, --max-queued-requests
  // Of these, places that only a tenant with nothing under way gets, so that one tenant cannot close the door for the
  // others. For servers with several tenants.
  int reserved = 0;
  std::function<double()> now;  // seconds, never going back; absent: the steady clock
};

class Limiter {
  struct State;

 public:
  // A request under way. Its place is given up when it goes; it may outlive the Limiter.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept = default;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { release(); }

    // Takes the prompt's tokens from the tenant's bucket, all or none. Refused: too many at present (429), or more than
    // a minute's worth (400: waiting does not help). The request's own count is given back then.
    std::optional<Refusal> charge_prompt(std::int64_t tokens);
    // Takes what was generated, also beyond what is left: an answer is not cut, later requests wait instead.
    void charge_generated(std::int64_t tokens);
    // The engine refused the request: what was charged is given back. The place is still held.
    void take_back();
    void release();

   private:
    friend class Limiter;
    std::shared_ptr<State> state_;
    std::string tenant_;
    TenantLimits limits_;
    int sequences_ = 0;
    std::int64_t charged_ = 0;  // tokens
    bool counted_ = false;      // in the requests of this minute
    double since_ = 0;
  };

  explicit Limiter(LimiterOptions options);

  // `sequences` is how many the request becomes (OpenAI's n times the number of prompts). To be called before costly
  // work on the request, charge_prompt once its tokens are known.
  std::variant<Ticket, Refusal> admit(const Caller& caller, int sequences = 1);
  // After a reload: forgets the tenants that are not among these and have nothing under way.
  void retain(const std::vector<std::string>& tenants);
  int in_flight() const;  // sequences
  std::size_t tenants() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace cadre::server
