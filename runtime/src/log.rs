//! What log lines look like: text for people or JSON for machines, on standard error.
//!
//! `-v` means what it means in Kubernetes' programs: 0 to 2 tell state changes, from 4 on every call, from 6 on traces.
//! Libraries stay quiet below 8, and never log more than warnings about connections before that. What others wrote (names of
//! objects, texts of callers) can't begin a line of its own.

use std::fmt::{self, Write as _};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{FmtSpan, Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Our packages, as log targets.
const OURS: [&str; 5] = [
    "runtime",
    "proto",
    "k8s_agent",
    "cloud_broker",
    "cloudstack_simulator",
];

/// Libraries that log what goes over connections.
const FRAMES: [&str; 7] = [
    "h2",
    "hyper",
    "hyper_util",
    "rustls",
    "reqwest",
    "kube_client",
    "tower",
];

/// Flags for logs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// How much is logged: 0 to 2 state changes, 4 every call, 6 traces, 8 libraries too
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = 2)]
    pub verbosity: u8,

    /// text for people, json for machines
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub logging_format: Format,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One line of text.
    Text,
    /// One JSON object.
    Json,
}

impl LogArgs {
    fn filter(&self) -> Targets {
        let (ours, others) = match self.verbosity {
            0..=3 => (LevelFilter::INFO, LevelFilter::WARN),
            4 | 5 => (LevelFilter::DEBUG, LevelFilter::WARN),
            6 | 7 => (LevelFilter::TRACE, LevelFilter::INFO),
            _ => (LevelFilter::TRACE, LevelFilter::DEBUG),
        };
        let filter = Targets::new()
            .with_default(others)
            .with_targets(OURS.map(|target| (target, ours)));
        if self.verbosity >= 8 {
            // HTTP/2 frames and TLS records can hold secrets; no verbosity shows them.
            filter.with_targets(FRAMES.map(|target| (target, LevelFilter::INFO)))
        } else {
            // It logs every error that it also returns, and we tell those in our own words.
            filter.with_target("kube_client", LevelFilter::OFF)
        }
    }

    /// Starts logging for the whole process. A second call changes nothing.
    pub fn start(&self) {
        let builder = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_span_events(FmtSpan::NONE)
            .with_writer(std::io::stderr);
        let started = match self.logging_format {
            Format::Text => builder
                .with_ansi(false)
                .fmt_fields(debug_fn(field).delimited(" "))
                .finish()
                .with(self.filter())
                .try_init(),
            Format::Json => builder
                .json()
                .flatten_event(true)
                .with_current_span(true)
                .finish()
                .with(self.filter())
                .try_init(),
        };
        if started.is_err() {
            tracing::debug!("logging was started before");
        }
    }
}

/// One field of a line of text.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let mut line = OneLine(writer);
    match field.name() {
        "message" => write!(line, "{value:?}"),
        name => write!(line, "{}={value:?}", name.trim_start_matches("r#")),
    }
}

/// Writes what ends a line, or tells a terminal something, as an escape.
struct OneLine<'a, 'w>(&'a mut Writer<'w>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            let plain = part.trim_end_matches(char::is_control);
            self.0.write_str(plain)?;
            for odd in part.chars().filter(|c| c.is_control()) {
                write!(self.0, "{}", odd.escape_default())?;
            }
        }
        Ok(())
    }
}

/// An error and everything that caused it, each cause once, joined by colons.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let part = cause.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use rstest::rstest;
    use tracing::Level;

    use super::*;

    #[rstest]
    #[case::normal(2, "cloud_broker::rpc", Level::INFO, true)]
    #[case::no_calls(2, "cloud_broker::rpc", Level::DEBUG, false)]
    #[case::calls(4, "cloud_broker::rpc", Level::DEBUG, true)]
    #[case::traces(6, "k8s_agent", Level::TRACE, true)]
    #[case::libraries_stay_quiet(6, "moka", Level::DEBUG, false)]
    #[case::libraries_too(9, "moka", Level::DEBUG, true)]
    #[case::frames_stay_hidden(9, "h2::codec", Level::DEBUG, false)]
    #[case::told_in_our_words(2, "kube_client::client", Level::ERROR, false)]
    fn verbosity_chooses_the_level(
        #[case] verbosity: u8,
        #[case] target: &str,
        #[case] level: Level,
        #[case] is_shown: bool,
    ) {
        let args = LogArgs {
            verbosity,
            logging_format: Format::Text,
        };
        assert_eq!(args.filter().would_enable(target, &level), is_shown);
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_text_of_somebody_else_begins_no_line_of_its_own() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .fmt_fields(debug_fn(field).delimited(" "))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let forged = "no\n2031-01-01T00:00:00Z ERROR all is lost\u{1b}[2J";
            let span = tracing::info_span!("rpc", tenant = %forged);
            span.in_scope(|| tracing::info!(fault = %forged, quoted = forged, count = 3, "said {forged}"));
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(text.matches("\\n2031-01-01T00:00:00Z ERROR").count(), 4, "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("count=3"), "{text}");
    }

    #[test]
    fn a_cause_is_told_once() {
        let inner = io::Error::other("connection refused");
        let outer = crate::secret::SecretError::Unreadable {
            path: "/k".into(),
            source: inner,
        };
        assert_eq!(chain(&outer), "secret file /k can't be read: connection refused");
    }
}
