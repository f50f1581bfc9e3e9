// Where a position of a sequence lies in the pages of a cache.
#pragma once

#include "ops/batch.h"
#include "ops/ref/access.h"

namespace cadre {

struct BlockTable {
  View blocks;  // int32 [S, B]
  std::int64_t pages = 0, page_size = 0;

  BlockTable(const Batch& batch, std::int64_t page_count, std::int64_t tokens_in_page)
      : blocks(batch.blocks), pages(page_count), page_size(tokens_in_page) {
    CADRE_CHECK(batch.tokens == 0 || (blocks.rank == 2 && blocks.dtype == DType::kI32 && unit_last(blocks) &&
                                      blocks.dim(0) >= batch.sequences),
                "blocks are not int32 [S, B]");
    CADRE_CHECK(is_index(batch.positions, batch.tokens) && is_index(batch.sequence, batch.tokens),
                "positions and sequence are not int32 [T]");
  }

  // Inside closures only. The row within the page is position % page_size.
  std::int64_t page(std::int64_t sequence, std::int64_t position) const {
    const std::int64_t index = position / page_size;
    CADRE_CHECK(position >= 0 && index < blocks.dim(1), "position outside the block table");
    const std::int64_t page = ptr<const std::int32_t>(blocks)[sequence * blocks.step(0) + index];
    CADRE_CHECK(page >= 0 && page < pages, "page outside the cache");
    return page;
  }
};

}  // namespace cadre
