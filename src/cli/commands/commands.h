// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

/// The commands of the lockstep program, a file each: it adds its options to `app`, and hands out what is to run where
/// the command line asks for it.
namespace lockstep::cli {

/// What the command line asked for, ready to run. Returns the exit code.
using Command = std::function<int()>;

/// `lockstep run -n 4 -- program args...`: starts the ranks of one host and stays until they have ended.
void setup_run(CLI::App& app, Command& chosen, const std::vector<std::string>& program);

/// `lockstep doctor -- PROGRAM`: hands over to the Python package's doctor, and ends with its exit code.
void setup_doctor(CLI::App& app, Command& chosen, const std::vector<std::string>& program);

/// `lockstep train MODEL`: alone or as each process of a job. Ends with 0, or with 128 + the number of the signal that
/// stopped it.
void setup_train(CLI::App& app, Command& chosen);

/// `lockstep evaluate CHECKPOINT --data D`: on all devices, each example once.
void setup_evaluate(CLI::App& app, Command& chosen);

/// `lockstep predict CHECKPOINT FILE...`: what a network makes of images, of tensors in a .pt file, or of clouds.
void setup_predict(CLI::App& app, Command& chosen);

/// `lockstep hash FILE...`: one SHA-256 over the names, shapes, dtypes and bytes of the weights.
void setup_hash(CLI::App& app, Command& chosen);

/// `lockstep convert FROM TO`: weights in another format, chosen by the ending of the name.
void setup_convert(CLI::App& app, Command& chosen);

/// `lockstep completion SHELL`: prints a script by which bash or zsh completes commands, options and their values.
void setup_completion(CLI::App& app, Command& chosen);

/// `lockstep report RUN...`: one HTML page on the runs in these folders.
void setup_report(CLI::App& app, Command& chosen);

/// `lockstep verify MODEL`: trains under each placement. Ends with 0 where all have the same bits, else with 1.
void setup_verify(CLI::App& app, Command& chosen);

/// `lockstep speedup MODEL --batch 256,512 --devices 1,2`: how a step gets faster with devices, and where the rest of
/// its time goes.
void setup_speedup(CLI::App& app, Command& chosen);

/// `lockstep compare MODEL --devices 2 --splits "data;p2"`: what ways to divide a training over devices cost. Ends with
/// 0 where all have the same bits, else with 1.
void setup_compare(CLI::App& app, Command& chosen);

/// `lockstep forecast MODEL --devices 1,2,4`: what a step will take on other devices, from a profile of one.
void setup_forecast(CLI::App& app, Command& chosen);

/// `lockstep trial --paced PROFILE`, in every process of a run: sleeps instead of computing, and really communicates.
void setup_trial(CLI::App& app, Command& chosen);

/// `lockstep sweep MODEL --lr 0.05,0.1,0.2 --devices 1,2`: which learning rate suits which number of devices.
void setup_sweep(CLI::App& app, Command& chosen);

/// `lockstep info`: devices, backends, versions, fingerprints and this process's place in its run.
void setup_info(CLI::App& app, Command& chosen);

/// `lockstep selftest`, alone or in every process of a run: every collective on every backend. Ends with 1 where a
/// check failed on some rank.
void setup_selftest(CLI::App& app, Command& chosen);

}  // namespace lockstep::cli
