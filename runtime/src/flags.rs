//! Command lines as people write them for Go programs, made readable for clap.
//!
//! Go takes `-v=4` and `--v 4`, and Kubernetes' programs take `_` for `-` in names. Booleans take a value only behind `=`.
//! Durations are written `1m30s`.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

/// Rewrites a command line so that clap reads it as Go would: `_` in long names becomes `-`, and a single dash before a
/// long name is doubled. What follows a bare `--` is left alone.
pub fn normalise(argv: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut plain = false;
    argv.into_iter()
        .enumerate()
        .map(|(position, arg)| {
            plain |= arg == "--";
            if position == 0 || plain {
                arg
            } else {
                arg.to_str().and_then(normalise_one).map_or(arg, OsString::from)
            }
        })
        .collect()
}

fn normalise_one(arg: &str) -> Option<String> {
    let name_and_value = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
    let starts_like_a_name = name_and_value.starts_with(|first: char| first.is_ascii_alphabetic());
    if !starts_like_a_name || arg == "-h" {
        return None;
    }
    let (name, value) = match name_and_value.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name_and_value, None),
    };
    let name = name.replace('_', "-");
    Some(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")))
}

/// A duration in Go's notation: a sequence of decimal numbers with units, such as `300ms`, `1.5h` or `2h45m`; `0` needs
/// no unit. Negative durations are refused: no setting of ours has a use for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(Duration);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a duration: write it like 30s, 5m or 1h30m")]
pub struct NotADuration(String);

impl GoDuration {
    /// A duration that is already known.
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl std::fmt::Display for GoDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match (rest, nanos) {
            (0, 0) if seconds > 0 => Ok(()),
            (_, 0) => write!(f, "{rest}s"),
            _ => {
                let fraction = format!("{nanos:09}");
                write!(f, "{rest}.{}s", fraction.trim_end_matches('0'))
            }
        }
    }
}

impl FromStr for GoDuration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let refuse = || NotADuration(text.to_owned());
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        let mut total = Duration::ZERO;
        if rest.is_empty() {
            return Err(refuse());
        }
        while !rest.is_empty() {
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(refuse)?;
            let (number, tail) = rest.split_at(end);
            let unit_end = tail
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let seconds =
                number.parse::<f64>().map_err(|_| refuse())? * seconds_in(unit).ok_or_else(refuse)?;
            let part = Duration::try_from_secs_f64(seconds).map_err(|_| refuse())?;
            total = total.checked_add(part).ok_or_else(refuse)?;
            rest = tail;
        }
        Ok(Self(total))
    }
}

fn seconds_in(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" | "μs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

/// One row of a page about flags: the flag with the form of its value, its default, and what it means.
pub fn reference_row(arg: &clap::Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let form = names
        .iter()
        .map(|name| name.replace('|', "\\|"))
        .collect::<Vec<_>>();
    let may_be_bare = arg.get_num_args().is_some_and(|number| number.min_values() == 0);
    let form = if !arg.get_action().takes_values() {
        String::new()
    } else if may_be_bare {
        "[=true\\|false]".to_owned()
    } else {
        format!(" {}", form.join(" "))
    };
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    let default = Some(defaults.join(",")).filter(|text| !text.is_empty());
    let default = default.map(|text| format!("`{text}`")).unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let variable = arg
        .get_env()
        .map(|name| format!("; also the variable `{}`", name.to_string_lossy()));
    format!(
        "| `--{}{form}` | {default} | {}{} |\n",
        arg.get_long().unwrap_or_default(),
        help.replace('\n', " "),
        variable.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        /// Where to go
        #[arg(long, value_name = "HERE|THERE", default_value = "here", env = "WAY")]
        _way: String,
        /// Whether to go
        #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
        _go: bool,
        /// Print and end
        #[arg(long)]
        _print: bool,
    }

    #[rstest]
    #[case::a_value(
        "_way",
        "| `--way HERE\\|THERE` | `here` | Where to go; also the variable `WAY` |\n"
    )]
    #[case::a_boolean("_go", "| `--go[=true\\|false]` | `false` | Whether to go |\n")]
    #[case::a_switch("_print", "| `--print` |  | Print and end |\n")]
    fn a_row_shows_the_form_the_default_and_the_variable(#[case] id: &str, #[case] row: &str) {
        let command = <Flags as clap::CommandFactory>::command();
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_id() == id)
            .expect("a flag");
        assert_eq!(reference_row(arg), row);
    }

    #[rstest]
    #[case::seconds("30s", 30_000)]
    #[case::several_units("1m30s", 90_000)]
    #[case::fractions("1.5h", 5_400_000)]
    #[case::milliseconds("300ms", 300)]
    #[case::bare_zero("0", 0)]
    #[case::zero_seconds("0s", 0)]
    fn durations_are_read_as_go_reads_them(#[case] text: &str, #[case] milliseconds: u64) {
        assert_eq!(text.parse(), Ok(GoDuration(Duration::from_millis(milliseconds))));
    }

    #[rstest]
    #[case::no_unit("30")]
    #[case::empty("")]
    #[case::negative("-5s")]
    #[case::unknown_unit("5d")]
    #[case::two_points("1..5s")]
    #[case::too_long("99999999999999999999h")]
    fn what_is_no_duration_is_refused_with_an_example(#[case] text: &str) {
        let refused = text.parse::<GoDuration>().expect_err("not a duration");
        assert!(refused.to_string().contains("1h30m"), "{refused}");
    }

    #[rstest]
    #[case("1h30m")]
    #[case("5m")]
    #[case("30s")]
    #[case("0.3s")]
    #[case("0s")]
    fn durations_are_printed_so_that_they_read_back(#[case] text: &str) {
        let duration: GoDuration = text.parse().expect("a duration");
        assert_eq!(duration.to_string(), text);
    }

    #[rstest]
    #[case::one_dash("-v=4", "--v=4")]
    #[case::one_dash_with_a_separate_value("-v", "--v")]
    #[case::underscores("--cloud_config=a_b", "--cloud-config=a_b")]
    #[case::help("-h", "-h")]
    #[case::negative_number("-5", "-5")]
    #[case::positional("file_name", "file_name")]
    fn flags_are_rewritten_for_clap(#[case] given: &str, #[case] wanted: &str) {
        assert_eq!(
            normalise(["program".into(), given.into()]),
            vec![OsString::from("program"), wanted.into()]
        );
    }

    #[test]
    fn nothing_behind_a_bare_double_dash_is_touched() {
        let given: Vec<OsString> = ["p", "--", "-a_b"].map(OsString::from).to_vec();
        assert_eq!(normalise(given.clone()), given);
    }
}
