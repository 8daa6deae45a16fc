//! Names and help texts, and in which order they are shown.

use prometheus_client::registry::Registry;

use super::Metrics;
use super::labels::Build;

impl Metrics {
    /// Puts all of them into a registry.
    pub fn register(&self, registry: &mut Registry) {
        self.register_queues(registry);
        self.register_process(registry);
        self.register_nodes(registry);
        self.register_balancers(registry);
    }

    fn register_queues(&self, registry: &mut Registry) {
        registry.register(
            "workqueue_adds",
            "Keys added to a work queue",
            self.queue_adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Keys that come back after a failure",
            self.queue_retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long a key was due before work on it began",
            self.queue_waited.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long work on a key took",
            self.queue_worked.clone(),
        );
        registry.register_collector(Box::new(self.queues.clone()));
    }

    fn register_process(&self, registry: &mut Registry) {
        registry.register(
            "leader_election_master_status",
            "1 while this process leads",
            self.leader.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Renewals of the lease that had to read it first",
            self.leader_slow.clone(),
        );
        registry.register(
            "running_managed_controllers",
            "Controllers that run",
            self.controllers.clone(),
        );
        registry.register(
            "rest_client_requests",
            "Requests to kube-apiserver",
            self.api_requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "How long kube-apiserver took to answer",
            self.api_seconds.clone(),
        );
        registry.register("kubernetes_build_info", "What is running", self.build.clone());
        self.build
            .get_or_create(&Build {
                git_version: env!("CARGO_PKG_VERSION"),
            })
            .set(1);
        registry.register(
            "k8s_agent_broker_calls",
            "Calls to the broker",
            self.broker_calls.clone(),
        );
        registry.register(
            "k8s_agent_broker_call_duration_seconds",
            "How long the broker took to answer",
            self.broker_seconds.clone(),
        );
        registry.register(
            "k8s_agent_broker_up",
            "1 while the broker answers",
            self.broker_up.clone(),
        );
        registry.register(
            "k8s_agent_events_dropped",
            "Events that were not written: too many, or refused",
            self.events_dropped.clone(),
        );
    }

    fn register_nodes(&self, registry: &mut Registry) {
        registry.register(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "From the creation of a node until its taint is removed",
            self.taint_removal_delay.clone(),
        );
        registry.register(
            "node_controller_initial_node_sync_delay_seconds",
            "From the creation of a node until it is initialised",
            self.initial_sync_delay.clone(),
        );
        registry.register(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "How long one run over the nodes took",
            self.monitor_seconds.clone(),
        );
        registry.register(
            "cloud_node_lifecycle_controller_nodes_processed",
            "Nodes looked at, by where the answer came from",
            self.nodes_processed.clone(),
        );
        registry.register(
            "k8s_agent_nodes_held",
            "Nodes whose machine is gone and that the brake keeps from being deleted",
            self.nodes_held.clone(),
        );
        registry.register(
            "k8s_agent_nodes_deleted",
            "Nodes deleted because their machine is gone",
            self.nodes_deleted.clone(),
        );
    }

    fn register_balancers(&self, registry: &mut Registry) {
        registry.register(
            "service_controller_loadbalancer_sync",
            "Changes of the set of nodes brought to a load balancer",
            self.node_set_syncs.clone(),
        );
        registry.register(
            "service_controller_nodesync_error",
            "Changes of the set of nodes that a load balancer did not take",
            self.node_set_errors.clone(),
        );
        registry.register(
            "service_controller_nodesync_latency_seconds",
            "From a change of the set of nodes until all load balancers have it",
            self.node_set_seconds.clone(),
        );
        registry.register(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "How long one load balancer took for a change of the set of nodes",
            self.host_update_seconds.clone(),
        );
        registry.register(
            "k8s_agent_load_balancer_operations",
            "Ensures and deletes of load balancers by how they ended",
            self.balancer_operations.clone(),
        );
        registry.register(
            "k8s_agent_load_balancer_operation_duration_seconds",
            "How long an ensure or delete of a load balancer took",
            self.balancer_seconds.clone(),
        );
    }
}
