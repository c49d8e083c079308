#include "memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace pagoda {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

size_t size_product(std::initializer_list<size_t> factors) {
  size_t product = 1;
  for (const size_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) throw std::bad_alloc();
  return product;
}

Memory::Memory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  // Huge pages save most of the look-ups of addresses; they must begin at a multiple of their size.
  const bool huge = bytes >= kHugePage;
  mapped_bytes_ = huge ? bytes + kHugePage : bytes;
  if (mapped_bytes_ < bytes) throw std::bad_alloc();
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(mapped_);
  if (!huge) return;
  data_ += (kHugePage - reinterpret_cast<uintptr_t>(mapped_) % kHugePage) % kHugePage;
#ifdef MADV_HUGEPAGE
  madvise(data_, bytes, MADV_HUGEPAGE);
#endif
}

Memory::~Memory() {
  if (mapped_) munmap(mapped_, mapped_bytes_);
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

}  // namespace pagoda
