// heterog completion: scripts made of the program's own tables.
#include "cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/shell.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/planner_table.h"
#include "decide/decisions.h"

namespace heterog::cli {

namespace {

using Words = std::vector<std::string>;

// What follows an option.
enum class Takes : std::uint8_t { kNothing, kNumber, kWord, kFile };

struct OptionRow {
  std::string name;  // "--batch"
  std::string help;
  Takes takes = Takes::kFile;
  Words words;  // of kWord
};
struct VerbRow {
  std::string name;
  std::string help;
  std::vector<OptionRow> options;
  Words words;  // that may stand without an option in front
};

Words planner_names() {
  Words names;
  for (const search::PlannerEntry& entry : planner_registry().entries()) {
    names.emplace_back(entry.name);
  }
  return names;
}

// Names that an option takes; empty: it takes numbers, files or text.
Words words_of(const std::string& verb, const std::string& option) {
  if (option == "--planner") {
    return verb == "shares" ? Words{"search", "ev-ar", "cp-ar"} : planner_names();
  }
  if (option == "--order") {
    Words names;
    for (auto order : decide::kSearchedOrders) {
      names.emplace_back(decide::order_policy_name(order));
    }
    return names;
  }
  if (option == "--collectives") return {"per-device", "serial"};
  if (option == "--compress") {
    return {"fp16", "fp16,feedback", "bf16", "bf16,feedback", "powersgd:rank=2"};
  }
  if (option == "--log-level") return {"error", "warn", "info", "debug"};
  if (option == "--dtype") return {"float64", "float32"};
  if (option == "--devices") return {"cpu", "plan"};
  if (option == "--to") return {"torch-pipelining", "torchtitan", "megatron", "ddp"};
  if (option == "--transport") return {"tcp", "gloo"};
  return {};
}

// The first sentence, short enough for a menu.
std::string short_help(const std::string& help) {
  constexpr std::size_t kLongest = 80;
  return printable(help.substr(0, help.find_first_of(";(\n")), kLongest);
}

std::vector<VerbRow> rows_of(const CLI::App& app) {
  std::vector<VerbRow> rows;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    VerbRow row{.name = verb->get_name(),
                .help = short_help(verb->get_description()),
                .options = {},
                .words = {}};
    if (row.name == "planners") row.words = planner_names();
    if (row.name == "completion") row.words = {"bash", "zsh", "fish"};
    for (const CLI::Option* option : verb->get_options()) {
      const std::string type = option->get_type_name();
      for (const std::string& name : option->get_lnames()) {
        OptionRow one{.name = "--" + name,
                      .help = short_help(option->get_description()),
                      .takes = Takes::kFile,
                      .words = words_of(row.name, "--" + name)};
        if (option->get_items_expected_max() == 0) {
          one.takes = Takes::kNothing;
        } else if (!one.words.empty()) {
          one.takes = Takes::kWord;
        } else if (type == kIntegerWord || type == kNumberWord) {
          one.takes = Takes::kNumber;
        }
        row.options.push_back(std::move(one));
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Words names_of(const VerbRow& verb) {
  Words names;
  for (const OptionRow& option : verb.options) names.push_back(option.name);
  return names;
}
Words names_of(const std::vector<VerbRow>& verbs) {
  Words names;
  for (const VerbRow& verb : verbs) names.push_back(verb.name);
  return names;
}

// "    'plan --order') words='rank fifo' ;;" for every option that takes a word or a number.
std::string value_cases(const std::vector<VerbRow>& verbs) {
  std::string text;
  for (const VerbRow& verb : verbs) {
    for (const OptionRow& option : verb.options) {
      const std::string key = shell_word(verb.name + " " + option.name);
      if (option.takes == Takes::kFile) text += fmt::format("    {}) files=yes ;;\n", key);
      if (option.takes == Takes::kNumber) text += fmt::format("    {}) return ;;\n", key);
      if (option.takes == Takes::kWord) {
        text += fmt::format("    {}) words='{}' ;;\n", key, fmt::join(option.words, " "));
      }
    }
  }
  return text;
}

// "    plan) options='--graph …' words='…' ;;" for every verb.
std::string verb_cases(const std::vector<VerbRow>& verbs) {
  std::string text;
  for (const VerbRow& verb : verbs) {
    text += fmt::format("    {}) options='{}'; words='{}' ;;\n", verb.name,
                        fmt::join(names_of(verb), " "), fmt::join(verb.words, " "));
  }
  return text;
}

constexpr const char* kBash = R"(# Completion of heterog for bash: source <(heterog completion bash)
_heterog() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local verb="${{COMP_WORDS[1]}}" options= words= files=
  COMPREPLY=()
  # bash splits --option=value at the sign.
  if [ "$current" = = ]; then
    current=
  elif [ "$before" = = ]; then
    before="${{COMP_WORDS[COMP_CWORD-2]}}"
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{verbs} --help --version' -- "$current"))
    return
  fi
  case "$verb $before" in
{values}  esac
  if [ -z "$words$files" ]; then
    case "$verb" in
{verb_cases}    esac
    if [ "${{current#-}}" != "$current" ]; then
      COMPREPLY=($(compgen -W "$options" -- "$current"))
      return
    fi
  fi
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -F _heterog heterog
)";

constexpr const char* kZsh = R"(#compdef heterog
# Completion of heterog for zsh: source <(heterog completion zsh), or as _heterog in a folder of $fpath
_heterog() {{
  if (( CURRENT == 2 )); then
    compadd -- {verbs} --help --version
  else
    local current="${{words[CURRENT]}}" before="${{words[CURRENT-1]}}"
    if [[ "$current" == --*=* ]]; then
      before="${{current%%=*}}" current="${{current#*=}}"
      compset -P '*='
    fi
    _heterog_words "${{words[2]}}" "$before" "$current"
  fi
}}
_heterog_words() {{
  local words= options= files=
  case "$1 $2" in
{values}  esac
  if [[ -z "$words$files" ]]; then
    case "$1" in
{verb_cases}    esac
    if [[ "$3" == -* ]]; then
      compadd -- ${{=options}}
      return
    fi
  fi
  if [[ -n "$words" ]]; then compadd -- ${{=words}}; else _files; fi
}}
if [[ "${{funcstack[1]}}" == _heterog ]]; then _heterog "$@"; else compdef _heterog heterog; fi
)";

std::string fish_script(const std::vector<VerbRow>& verbs) {
  std::string text =
      "# Completion of heterog for fish: heterog completion fish | source\n"
      "complete -c heterog -e\n";
  for (const VerbRow& verb : verbs) {
    text += fmt::format("complete -c heterog -n __fish_use_subcommand -f -a {} -d {}\n", verb.name,
                        shell_word(verb.help));
  }
  for (const VerbRow& verb : verbs) {
    const std::string when =
        fmt::format("complete -c heterog -n '__fish_seen_subcommand_from {}'", verb.name);
    if (!verb.words.empty()) {
      text += fmt::format("{} -f -a '{}'\n", when, fmt::join(verb.words, " "));
    }
    for (const OptionRow& option : verb.options) {
      std::string takes;
      if (option.takes == Takes::kNumber) takes = " -x";
      if (option.takes == Takes::kFile) takes = " -r -F";
      if (option.takes == Takes::kWord) {
        takes = fmt::format(" -x -a '{}'", fmt::join(option.words, " "));
      }
      text += fmt::format("{} -l {}{} -d {}\n", when, option.name.substr(2), takes,
                          shell_word(option.help));
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const std::vector<VerbRow> verbs = rows_of(app);
  if (shell == "fish") return fish_script(verbs);
  VALIDATE(shell == "bash" || shell == "zsh",
           "completion: \"{}\" given; there are scripts for bash, zsh and fish", printable(shell));
  return fmt::format(fmt::runtime(shell == "bash" ? kBash : kZsh),
                     fmt::arg("verbs", fmt::join(names_of(verbs), " ")),
                     fmt::arg("values", value_cases(verbs)),
                     fmt::arg("verb_cases", verb_cases(verbs)));
}

void add_completion(CLI::App& app, Action& chosen) {
  auto shell = std::make_shared<std::string>();
  CLI::App& verb =
      *app.add_subcommand("completion", "Prints a script by which a shell completes command lines");
  verb.add_option("shell", *shell, "bash, zsh or fish")->required();
  verb.footer(
      "Example:\n  source <(heterog completion bash)          # in ~/.bashrc, to keep it\n"
      "  source <(heterog completion zsh)           # in ~/.zshrc, behind compinit\n"
      "  heterog completion fish | source           # in ~/.config/fish/config.fish");
  verb.callback([shell, &app, &chosen] {
    chosen = [shell, &app](const Caller& caller) {
      caller.print(completion_script(app, *shell));
      return 0;
    };
  });
}

}  // namespace heterog::cli
