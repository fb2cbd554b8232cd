// SPDX-License-Identifier: Apache-2.0
// libFuzzer on configurations: any text is read or refused with an Error, and what is read is the same after it was
// written and read again.
#include "fuzzing.h"
#include "lockstep/run/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string text(reinterpret_cast<const char*>(data), size);
  test::read_or_refuse([&] {
    run::Config config, again;
    run::read_toml(config, text, "fuzz.toml");
    const std::string written = run::to_toml(config);
    run::read_toml(again, written, "again.toml");
    test::check(run::to_toml(again) == written, "that a configuration stays as it was written");
  });
  return 0;
}
