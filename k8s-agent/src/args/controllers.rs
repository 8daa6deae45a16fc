//! `--controllers`: which controllers run.

use std::collections::BTreeSet;

/// A controller, under the names that the flag knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Initialises nodes.
    Node,
    /// Deletes and taints nodes.
    NodeLifecycle,
    /// Serves Services.
    Service,
    /// Routes; known by name only, no cloud behind us offers them.
    Route,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Node, Self::NodeLifecycle, Self::Service, Self::Route];

    /// The name since Kubernetes 1.28.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "cloud-node-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-lb-controller",
            Self::Route => "node-route-controller",
        }
    }

    /// The name before, still used by metrics and health checks.
    pub const fn alias(self) -> &'static str {
        match self {
            Self::Node => "cloud-node",
            Self::NodeLifecycle => "cloud-node-lifecycle",
            Self::Service => "service",
            Self::Route => "route",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        // The name that charts of others have used for the service controller, too.
        let word = if word == "service-controller" {
            Self::Service.name()
        } else {
            word
        };
        Self::ALL
            .into_iter()
            .find(|it| it.name() == word || it.alias() == word)
    }
}

/// The flag names a controller that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--controllers: \"{0}\" is not a controller; there are cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller and node-route-controller"
)]
pub struct UnknownController(String);

/// The controllers that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<Controller>);

impl Controllers {
    /// Reads the words of the flag: `*` is every controller, `name` and `-name` one of them. The first word that fits a controller decides.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, Vec<UnknownController>> {
        let (mut tokens, mut unknown) = (Vec::new(), Vec::new());
        for word in words.into_iter().map(str::trim).filter(|word| !word.is_empty()) {
            let (on, name) = word.strip_prefix('-').map_or((true, word), |name| (false, name));
            match Controller::from_word(name) {
                Some(controller) => tokens.push((Some(controller), on)),
                None if name == "*" => tokens.push((None, on)),
                None => unknown.push(UnknownController(word.to_owned())),
            }
        }
        if !unknown.is_empty() {
            return Err(unknown);
        }
        // A name counts before the star wherever it stands.
        let runs = |controller: &Controller| {
            let named = tokens.iter().find(|(name, _)| *name == Some(*controller));
            named.map_or_else(|| tokens.contains(&(None, true)), |(_, on)| *on)
        };
        Ok(Self(Controller::ALL.into_iter().filter(runs).collect()))
    }

    /// Whether this one runs.
    pub fn runs(&self, controller: Controller) -> bool {
        self.0.contains(&controller)
    }

    /// Those that run.
    pub fn iter(&self) -> impl Iterator<Item = Controller> {
        self.0.iter().copied()
    }
}
