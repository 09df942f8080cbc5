// SPDX-License-Identifier: Apache-2.0
// Feeds a fuzz target the empty input, then every file of the folders and files on the command
// line.
//
// This is main() of the fuzz targets where libFuzzer is not in use: seeds and past failures stay
// tests in every build. A folder that does not exist holds no seeds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> seedsOf(const fs::path& place) {
  std::vector<fs::path> seeds;
  if (fs::is_directory(place)) {
    for (const auto& entry : fs::recursive_directory_iterator(place)) {
      if (entry.is_regular_file()) seeds.push_back(entry.path());
    }
  } else if (fs::exists(place)) {
    seeds.push_back(place);
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

void replay(const fs::path& seed) {
  // The name comes first: if the target ends the process, it is the last line.
  std::printf("%s\n", seed.c_str());
  std::fflush(stdout);
  std::ifstream file(seed, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 0;
  const std::uint8_t nothing = 0;
  LLVMFuzzerTestOneInput(&nothing, 0);
  for (int i = 1; i < argc; ++i) {
    for (const auto& seed : seedsOf(argv[i])) {
      replay(seed);
      ++count;
    }
  }
  std::printf("replayed %zu inputs and the empty one\n", count);
  return 0;
}
