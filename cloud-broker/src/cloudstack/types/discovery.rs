//! What a server says about itself and about the caller's surroundings.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::wire::{Entity, Fields};
use super::{ProjectId, ZoneId};

/// A server version; suffixes such as `-SNAPSHOT` and vendor tags are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl Version {
    /// A version to compare with.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Reads up to three leading numbers; one at least.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split('.').map(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().ok()
        });
        let major = numbers.next().flatten()?;
        let minor = numbers.next().flatten();
        let patch = minor.and_then(|_| numbers.next().flatten());
        Some(Self {
            major,
            minor: minor.unwrap_or(0),
            patch: patch.unwrap_or(0),
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What the server can do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Its version, if it says one that can be read.
    pub version: Option<Version>,
    /// The version as written.
    pub version_text: String,
    /// Calls per interval that the server grants an account; only while it throttles.
    pub api_limit: Option<(u32, Duration)>,
    /// Whether a user sees machines that were destroyed and not yet expunged.
    pub shows_destroyed_machines: Option<bool>,
}

impl Capabilities {
    pub(crate) fn parse(fields: Fields<'_>) -> Self {
        let version_text = fields.text("cloudstackversion").unwrap_or_default();
        let calls = fields.small::<u32>("apilimitmax").filter(|calls| *calls > 0);
        let seconds = fields
            .small::<u64>("apilimitinterval")
            .filter(|seconds| *seconds > 0);
        Self {
            version: Version::parse(&version_text),
            version_text,
            api_limit: calls.zip(seconds.map(Duration::from_secs)),
            shows_destroyed_machines: fields.flag("allowuserviewdestroyedvm"),
        }
    }
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its id.
    pub id: ZoneId,
    /// Its name.
    pub name: String,
    /// `Advanced` or `Basic`.
    pub network_type: String,
}

impl Entity for Zone {
    const KEYS: &'static [&'static str] = &["zone"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            name: fields.text("name").unwrap_or_default(),
            network_type: fields.text("networktype").unwrap_or_default(),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

/// A project that the caller is a member of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// Its name.
    pub name: String,
    /// Whether it works.
    pub state: ProjectState,
}

/// Whether a project works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectState {
    /// It does.
    Active,
    /// It doesn't, in the server's word.
    Other(String),
}

impl Entity for Project {
    const KEYS: &'static [&'static str] = &["project"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        let state = fields.text("state").unwrap_or_default();
        Some(Self {
            id: fields.id("id")?,
            name: fields.text("name").unwrap_or_default(),
            state: if state == "Active" {
                ProjectState::Active
            } else {
                ProjectState::Other(state)
            },
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

/// A command that the caller's role may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCommand {
    /// Its name.
    pub name: String,
    /// The parameters that the server understands, lower case.
    pub parameters: BTreeSet<String>,
}

impl Entity for ApiCommand {
    const KEYS: &'static [&'static str] = &["api"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        // Names, or objects with a name where the answer was not read compactly.
        let entries = fields
            .raw("params")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let name = |entry: &Value| {
            entry
                .as_str()
                .or_else(|| entry.get("name")?.as_str())
                .map(str::to_ascii_lowercase)
        };
        let parameters = entries.iter().filter_map(name).collect();
        Some(Self {
            name: fields.text("name")?,
            parameters,
        })
    }

    fn identity(&self) -> &str {
        &self.name
    }
}
