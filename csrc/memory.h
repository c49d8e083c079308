// Memory from the operating system: zeroed, 64-byte aligned, not touched before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace pagoda {

// Throws std::bad_alloc where the product is larger than any memory.
size_t size_product(std::initializer_list<size_t> factors);

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes);   // throws std::bad_alloc
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace pagoda
