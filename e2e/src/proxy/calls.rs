//! What a call is: its command, its kind, and how calls are counted.

use std::collections::BTreeMap;
use std::fmt;

/// What a call does to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It lists or looks up.
    Read,
    /// It changes something or starts a job.
    Write,
    /// It asks how a job stands.
    Poll,
}

impl Kind {
    /// The kind of a command, by CloudStack's naming habit.
    pub fn of(command: &str) -> Self {
        match command {
            "queryAsyncJobResult" | "listAsyncJobs" => Self::Poll,
            read if ["list", "get", "query", "find"]
                .iter()
                .any(|prefix| read.starts_with(prefix)) =>
            {
                Self::Read
            }
            _ => Self::Write,
        }
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its command.
    pub command: String,
    /// Its parameters but the secret ones and those of every call.
    pub params: BTreeMap<String, String>,
    /// HTTP status of the answer; 0 before there is one.
    pub status: u16,
}

impl Call {
    /// Reads a call from the query and the form body, whichever it came in.
    pub fn parse(query: &str, body: &[u8]) -> Self {
        let mut params = BTreeMap::new();
        for (name, value) in pairs(query, body) {
            // Secrets, and what every call carries.
            let left_out = [
                "apikey",
                "signature",
                "secretkey",
                "sessionkey",
                "expires",
                "response",
                "signatureversion",
            ];
            if !left_out.contains(&name.to_lowercase().as_str()) {
                params.insert(name, value);
            }
        }
        let command = params.remove("command").unwrap_or_default();
        Self {
            command,
            params,
            status: 0,
        }
    }

    /// The same with its answer's status.
    #[must_use]
    pub fn answered(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.command)
    }
}

fn pairs(query: &str, body: &[u8]) -> Vec<(String, String)> {
    let of = |text: &[u8]| url::form_urlencoded::parse(text).into_owned().collect::<Vec<_>>();
    [of(query.as_bytes()), of(body)].concat()
}

/// The signatures in a call, decoded and as sent.
pub(super) fn signatures(query: &str, body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in pairs(query, body) {
        if name.eq_ignore_ascii_case("signature") {
            found.push(url::form_urlencoded::byte_serialize(value.as_bytes()).collect());
            found.push(value);
        }
    }
    found
}

/// Calls by kind and by command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many of each command.
    pub by_command: BTreeMap<String, usize>,
}

impl Counts {
    /// Counts calls.
    pub fn of(calls: &[Call]) -> Self {
        let mut by_command = BTreeMap::new();
        for call in calls {
            *by_command.entry(call.command.clone()).or_default() += 1;
        }
        Self { by_command }
    }

    /// How many of one command.
    pub fn command(&self, command: &str) -> usize {
        self.by_command.get(command).copied().unwrap_or(0)
    }

    /// How many of one kind.
    pub fn kind(&self, kind: Kind) -> usize {
        let of = self
            .by_command
            .iter()
            .filter(|(command, _)| Kind::of(command) == kind);
        of.map(|(_, count)| count).sum()
    }

    /// How many writes.
    pub fn writes(&self) -> usize {
        self.kind(Kind::Write)
    }

    /// The commands that write, with their numbers.
    pub fn written(&self) -> BTreeMap<&str, usize> {
        let of = self
            .by_command
            .iter()
            .filter(|(command, _)| Kind::of(command) == Kind::Write);
        of.map(|(command, count)| (command.as_str(), *count)).collect()
    }
}

/// `reads / writes / polls: 2 listX, 1 createY`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [reads, writes, polls] = [Kind::Read, Kind::Write, Kind::Poll].map(|kind| self.kind(kind));
        let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(
            f,
            "{}, {}, {}",
            many(reads, "read"),
            many(writes, "write"),
            many(polls, "job poll")
        )?;
        let parts: Vec<_> = self
            .by_command
            .iter()
            .map(|(name, n)| format!("{n} {name}"))
            .collect();
        if parts.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", parts.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_a_query_and_a_call_in_a_form_are_read_alike() {
        let text = "command=listZones&apiKey=secret&signature=abc%2B&name=a+b";
        let get = Call::parse(text, b"");
        let post = Call::parse("", text.as_bytes());
        assert_eq!(get, post);
        assert_eq!(get.command, "listZones");
        assert_eq!(get.params.get("name").map(String::as_str), Some("a b"));
        assert!(!format!("{get:?}").contains("secret"));
        assert_eq!(signatures(text, b""), ["abc%2B", "abc+"]);
    }

    #[test]
    fn kinds_follow_the_names_of_commands() {
        let kinds = [
            "listZones",
            "queryAsyncJobResult",
            "createLoadBalancerRule",
            "associateIpAddress",
        ];
        assert_eq!(
            kinds.map(Kind::of),
            [Kind::Read, Kind::Poll, Kind::Write, Kind::Write]
        );
    }

    #[test]
    fn counts_say_how_many_of_which() {
        let call = |command: &str| Call::parse(&format!("command={command}"), b"");
        let counts = Counts::of(&[call("listZones"), call("listZones"), call("createTags")]);
        assert_eq!(
            counts.to_string(),
            "2 reads, 1 write, 0 job polls (1 createTags, 2 listZones)"
        );
        assert_eq!(counts.writes(), 1);
        assert_eq!(
            counts.written().into_iter().collect::<Vec<_>>(),
            [("createTags", 1)]
        );
    }
}
