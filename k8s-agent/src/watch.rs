//! One list and watch for each kind, shared by all controllers.
//!
//! [`Watch`] keeps a trimmed copy of every object and tells listeners what changed, with the object before and after, deletions
//! included; a relist that hides a deletion and a new object of the same name shows as one change with two UIDs. kube's shared store
//! streams neither deletions nor the old object, hence listeners. They are called in order and must not wait: they add keys to queues.
//! What a change means is decided elsewhere.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::apiserver::Explained as _;
use crate::service::trim;

/// An object before and after; one of them is there, or both.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// Before; nothing if it is new.
    pub old: Option<Arc<K>>,
    /// After; nothing if it is gone.
    pub new: Option<Arc<K>>,
}

type Listener<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

/// A kind of object that can be watched here.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Objects that one page of a list has at most. A page is in memory before anything of it is dropped.
    const PAGE: u32;

    /// Drops what nobody here reads, before it is stored.
    fn trim(&mut self);
}

impl Watched for Node {
    const PAGE: u32 = 100;

    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        if let Some(status) = &mut self.status {
            status.images = None;
            status.volumes_attached = None;
            status.volumes_in_use = None;
        }
    }
}

impl Watched for Service {
    /// Whoever may write Services decides how large they are, and kube-apiserver stores 1.5 MB of each. The client holds a page twice as text
    /// before it reads it, and then once as text beside what it read: 10 of the largest are 15 MB, about 45 MB in all, which leaves room in the
    /// 96 MiB that the container may have. 50 would be more than twice that limit.
    const PAGE: u32 = 10;

    fn trim(&mut self) {
        trim::trim(self);
    }
}

/// The watch of one kind. Clones share it.
#[derive(Clone)]
pub struct Watch<K: Watched> {
    store: Store<K>,
    shared: Arc<Shared<K>>,
}

struct Shared<K: Watched> {
    /// Held by the task that watches.
    writer: tokio::sync::Mutex<Writer<K>>,
    listeners: Mutex<Vec<Listener<K>>>,
}

impl<K: Watched> Default for Watch<K> {
    fn default() -> Self {
        let writer = Writer::new(());
        let store = writer.as_reader();
        let shared = Shared {
            writer: tokio::sync::Mutex::new(writer),
            listeners: Mutex::default(),
        };
        Self {
            store,
            shared: Arc::new(shared),
        }
    }
}

#[cfg(test)]
impl<K: Watched> Watch<K> {
    /// Takes in an object as a running watch would.
    pub(crate) fn put(&self, object: K) {
        self.take_in(&watcher::Event::Apply(object));
    }

    fn take_in(&self, event: &watcher::Event<K>) {
        self.apply(&mut self.shared.writer.try_lock().unwrap(), event);
    }
}

impl<K: Watched> Watch<K> {
    /// Calls `listener` for every object that is there and for every change from now on.
    pub fn listen(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut listeners = self.shared.listeners.lock();
        for object in self.store.state() {
            listener(&Change {
                old: None,
                new: Some(object),
            });
        }
        listeners.push(Arc::new(listener));
    }

    /// The object as it was seen last. `namespace` is empty for kinds without.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let reference = ObjectRef::new(name);
        self.store.get(&if namespace.is_empty() {
            reference
        } else {
            reference.within(namespace)
        })
    }

    /// All objects, in the order of their names.
    pub fn all(&self) -> Vec<Arc<K>> {
        let mut all = self.store.state();
        all.sort_by_cached_key(|object| (object.namespace(), object.name_any()));
        all
    }

    /// Waits until every object has been seen once.
    pub async fn synced(&self) {
        if self.store.wait_until_ready().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Lists and watches until `stop`, through whatever happens. A second call while that lasts returns at once.
    pub async fn run(&self, api: Api<K>, stop: CancellationToken) {
        let Ok(mut writer) = self.shared.writer.try_lock() else {
            return;
        };
        let kind = K::plural(&());
        let mut events = std::pin::pin!(
            watcher(api, watcher::Config::default().page_size(K::PAGE))
                .default_backoff()
                .modify(Watched::trim)
        );
        let mut fault = String::new();
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Ok(event) => {
                    if !fault.is_empty() && !matches!(event, watcher::Event::Init) {
                        tracing::info!(kind = %kind, "the watch works again");
                        fault.clear();
                    }
                    self.apply(&mut writer, &event);
                }
                Err(error) => {
                    let text = error.explain("watch", &kind);
                    if text != fault {
                        tracing::warn!(kind = %kind, fault = %text, "the watch fails, trying again");
                        fault = text;
                    }
                }
            }
        }
    }

    /// Puts an event of the watch into the store and tells the listeners.
    fn apply(&self, writer: &mut Writer<K>, event: &watcher::Event<K>) {
        // Held over both steps, so that a new listener misses nothing and hears nothing twice.
        let listeners = self.shared.listeners.lock();
        let before = match event {
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => {
                let reference = ObjectRef::from_obj(object);
                HashMap::from_iter(self.store.get(&reference).map(|old| (reference, old)))
            }
            watcher::Event::Init | watcher::Event::InitApply(_) => HashMap::new(),
            watcher::Event::InitDone => by_reference(self.store.state()),
        };
        writer.apply_watcher_event(event);
        let after = match event {
            watcher::Event::Apply(object) => {
                let reference = ObjectRef::from_obj(object);
                HashMap::from_iter(self.store.get(&reference).map(|new| (reference, new)))
            }
            watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitApply(_) => HashMap::new(),
            watcher::Event::InitDone => by_reference(self.store.state()),
        };
        for change in changes(before, after) {
            for listener in listeners.iter() {
                listener(&change);
            }
        }
    }
}

fn by_reference<K: Watched>(objects: Vec<Arc<K>>) -> HashMap<ObjectRef<K>, Arc<K>> {
    objects
        .into_iter()
        .map(|object| (ObjectRef::from_obj(object.as_ref()), object))
        .collect()
}

fn changes<R: Eq + Hash, K: Watched>(
    mut before: HashMap<R, Arc<K>>,
    after: HashMap<R, Arc<K>>,
) -> Vec<Change<K>> {
    let mut changes: Vec<Change<K>> = after
        .into_iter()
        .map(|(reference, new)| Change {
            old: before.remove(&reference),
            new: Some(new),
        })
        .filter(|change| match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                old.resource_version() != new.resource_version() || old.uid() != new.uid()
            }
            _ => true,
        })
        .collect();
    changes.extend(before.into_values().map(|old| Change {
        old: Some(old),
        new: None,
    }));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ContainerImage, NodeStatus};

    fn node(name: &str, uid: &str, version: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.into());
        node.metadata.uid = Some(uid.into());
        node.metadata.resource_version = Some(version.into());
        node
    }

    type Heard = Arc<Mutex<Vec<String>>>;

    fn watch() -> (Watch<Node>, Heard) {
        let watch = Watch::<Node>::default();
        let heard = Heard::default();
        let log = Arc::clone(&heard);
        watch.listen(move |change| {
            let uid =
                |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| node.uid()).unwrap_or("-".into());
            log.lock()
                .push(format!("{}>{}", uid(&change.old), uid(&change.new)));
        });
        (watch, heard)
    }

    #[test]
    fn listeners_hear_what_was_and_what_is() {
        let (watch, heard) = watch();
        watch.take_in(&watcher::Event::Apply(node("n", "a", "1")));
        watch.take_in(&watcher::Event::Apply(node("n", "a", "2")));
        watch.take_in(&watcher::Event::Delete(node("n", "a", "3")));
        assert_eq!(*heard.lock(), ["->a", "a>a", "a>-"]);
        assert!(watch.all().is_empty());
    }

    #[test]
    fn a_relist_shows_deletions_new_objects_under_old_names_and_nothing_unchanged() {
        let (watch, heard) = watch();
        for event in [
            watcher::Event::Init,
            watcher::Event::InitApply(node("gone", "a", "1")),
            watcher::Event::InitApply(node("again", "b", "2")),
            watcher::Event::InitApply(node("same", "c", "3")),
            watcher::Event::InitDone,
        ] {
            watch.take_in(&event);
        }
        heard.lock().clear();
        for event in [
            watcher::Event::Init,
            watcher::Event::InitApply(node("again", "d", "9")),
            watcher::Event::InitApply(node("same", "c", "3")),
            watcher::Event::InitDone,
        ] {
            watch.take_in(&event);
        }
        let mut heard = heard.lock().clone();
        heard.sort();
        assert_eq!(heard, ["a>-", "b>d"]);
    }

    #[test]
    fn a_late_listener_hears_of_everything_that_is_there() {
        let (watch, _) = watch();
        watch.take_in(&watcher::Event::Apply(node("n", "a", "1")));
        let heard = Heard::default();
        let log = Arc::clone(&heard);
        watch.listen(move |change| log.lock().push(change.new.as_ref().unwrap().name_any()));
        assert_eq!(*heard.lock(), ["n"]);
    }

    #[test]
    fn what_nobody_reads_is_not_kept() {
        let mut node = node("n", "a", "1");
        node.metadata.managed_fields = Some(Vec::new());
        node.status = Some(NodeStatus {
            images: Some(vec![ContainerImage::default()]),
            ..NodeStatus::default()
        });
        node.trim();
        assert_eq!(node.metadata.managed_fields, None);
        assert_eq!(node.status.unwrap().images, None);
    }

    #[tokio::test]
    async fn services_are_listed_in_pages_that_fit_into_memory() {
        use kube::client::Body;
        let (answers, mut asked) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
        let api = Api::<Service>::all(kube::Client::new(answers, "default"));
        let (watch, stop) = (Watch::<Service>::default(), CancellationToken::new());
        let uri = tokio::select! {
            () = watch.run(api, stop) => panic!("it watches for good"),
            asked = asked.next_request() => asked.unwrap().0.uri().to_string(),
        };
        // The API server stores objects of 1.5 MB.
        assert!(uri.contains("limit=10"), "{uri}");
    }
}
