//! Writes the manifests.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::PodOptions;
use allranks_report::command_line;
use allranks_runner::world::node::CREDENTIALS;

/// The key of the credentials in the Secret.
pub const SECRET_KEY: &str = "credentials.json";
/// The longest name of a Job. The host names of its Pods append a number, and may have 63 characters.
const LONGEST: usize = 52;

/// The manifests for one run: the same Pods as a Job, a JobSet and a TrainJob.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifests {
    /// The name of Job, Service, JobSet, TrainJob and Secret.
    pub name: String,
    options: PodOptions,
    nodes: u32,
}

impl Manifests {
    /// Makes the manifests of a run with this many nodes, whose folder has the name `run`.
    #[must_use]
    pub fn new(run: &str, nodes: u32, options: PodOptions) -> Self {
        let run: String = run
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let mut name = format!("allranks-{run}");
        name.truncate(LONGEST);
        Self {
            name: name.trim_end_matches('-').to_owned(),
            options,
            nodes,
        }
    }

    /// Writes `job.yaml`, `jobset.yaml` and `trainjob.yaml` into a folder, which is made. Returns their paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)?;
        let files = [
            ("job.yaml", vec![self.service(), self.job()]),
            ("jobset.yaml", vec![self.job_set()]),
            ("trainjob.yaml", vec![self.train_job()]),
        ];
        let mut paths = Vec::new();
        for (file, documents) in files {
            let documents: Result<Vec<String>, _> =
                documents.iter().map(serde_yaml::to_string).collect();
            let text = documents.map_err(io::Error::other)?.join("---\n");
            let path = folder.join(file);
            std::fs::write(&path, text)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Returns the commands that start the Pods, for a person to run. `credentials` is the run's file, `folder` that of the
    /// manifests.
    #[must_use]
    pub fn commands(&self, credentials: &Path, folder: &Path) -> String {
        let kubectl = |words: &[&str]| {
            let namespace = self.options.namespace.as_deref();
            let namespace = namespace.map(|name| ["-n", name]);
            let words = ["kubectl"].iter().chain(words);
            command_line(&words.chain(namespace.iter().flatten()).collect::<Vec<_>>())
        };
        let from = format!("--from-file={SECRET_KEY}={}", credentials.display());
        let file = folder.join("job.yaml").display().to_string();
        format!(
            "run: {} && {} (or jobset.yaml, or trainjob.yaml); afterwards, with the same file: {} && {}",
            kubectl(&["create", "secret", "generic", &self.name, &from]),
            kubectl(&["apply", "-f", &file]),
            kubectl(&["delete", "-f", &file]),
            kubectl(&["delete", "secret", &self.name]),
        )
    }

    fn metadata(&self) -> Value {
        match &self.options.namespace {
            None => json!({"name": self.name}),
            Some(namespace) => json!({"name": self.name, "namespace": namespace}),
        }
    }

    /// Returns the environment variables of an agent: its credentials, and the number of agents, which a Job does not set.
    fn env(&self) -> Value {
        json!([
            {"name": CREDENTIALS, "valueFrom": {"secretKeyRef": {"name": self.name, "key": SECRET_KEY}}},
            {"name": "ALLRANKS_NODES", "value": self.nodes.to_string()},
        ])
    }

    fn resources(&self) -> Value {
        match &self.options.devices {
            None => json!({}),
            Some((name, count)) => json!({"limits": {(name.as_str()): count}}),
        }
    }

    /// Returns the headless Service that gives Pods their host names.
    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(),
            "spec": {
                "clusterIP": "None",
                "selector": {"allranks-run": self.name},
                // The rendezvous takes place before any Pod counts as ready.
                "publishNotReadyAddresses": true,
            },
        })
    }

    /// Returns a Job's specification: one Pod on each node, without restarts.
    fn job_spec(&self, is_in_service: bool) -> Value {
        let mut pod = json!({
            "restartPolicy": "Never",
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {"allranks-run": self.name}},
                "topologyKey": "kubernetes.io/hostname",
            }]}},
            "containers": [{
                "name": "agent",
                "image": self.options.image,
                "command": ["allranks", "node"],
                "env": self.env(),
                "resources": self.resources(),
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }],
            // The default is 64 MiB, and backends need more.
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": self.options.shm}}],
        });
        if is_in_service {
            pod["subdomain"] = json!(self.name);
        }
        json!({
            "completions": self.nodes,
            "parallelism": self.nodes,
            "completionMode": "Indexed",
            // The run would refuse a restarted agent.
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"allranks-run": self.name}},
                "spec": pod,
            },
        })
    }

    fn job(&self) -> Value {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.metadata(),
            "spec": self.job_spec(true),
        })
    }

    fn job_set(&self) -> Value {
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": self.metadata(),
            "spec": {
                "network": {"enableDNSHostnames": true, "publishNotReadyAddresses": true},
                "failurePolicy": {"maxRestarts": 0},
                "replicatedJobs": [{
                    "name": "nodes",
                    "replicas": 1,
                    "template": {"spec": self.job_spec(false)},
                }],
            },
        })
    }

    /// Returns the TrainJob. Kubeflow's runtime tells Pods their numbers in `PET_NODE_RANK` and `PET_NNODES`.
    fn train_job(&self) -> Value {
        let mut trainer = json!({
            "image": self.options.image,
            "command": ["allranks", "node"],
            "numNodes": self.nodes,
            "numProcPerNode": 1,
            "env": self.env(),
        });
        if self.options.devices.is_some() {
            trainer["resourcesPerNode"] = self.resources();
        }
        json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": self.metadata(),
            "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": trainer,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    // The part of the schemas of Kubernetes (batch/v1), JobSet (v1alpha2) and Kubeflow Trainer (v1alpha1) that manifests of
    // allranks may use. A field that is not here is none of theirs, or must be looked up first.

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Object<Spec> {
        api_version: String,
        kind: String,
        metadata: Metadata,
        spec: Spec,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Metadata {
        name: String,
        namespace: Option<String>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct ServiceSpec {
        #[serde(rename = "clusterIP")]
        cluster_ip: String,
        selector: BTreeMap<String, String>,
        #[serde(rename = "publishNotReadyAddresses")]
        _publish: bool,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct JobSpec {
        completions: u32,
        parallelism: u32,
        completion_mode: String,
        backoff_limit: u32,
        template: PodTemplate,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct PodTemplate {
        metadata: Labels,
        spec: PodSpec,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Labels {
        labels: BTreeMap<String, String>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct PodSpec {
        restart_policy: String,
        #[serde(rename = "affinity")]
        _affinity: Value,
        containers: Vec<Container>,
        volumes: Vec<Volume>,
        subdomain: Option<String>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Container {
        #[serde(rename = "name")]
        _name: String,
        image: String,
        command: Vec<String>,
        env: Vec<EnvVar>,
        resources: Resources,
        volume_mounts: Vec<VolumeMount>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Resources {
        limits: Option<BTreeMap<String, u32>>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct VolumeMount {
        name: String,
        mount_path: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Volume {
        name: String,
        empty_dir: EmptyDir,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct EmptyDir {
        medium: String,
        size_limit: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct EnvVar {
        name: String,
        value: Option<String>,
        value_from: Option<ValueFrom>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct ValueFrom {
        secret_key_ref: KeyRef,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct KeyRef {
        name: String,
        key: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct JobSetSpec {
        #[serde(rename = "network")]
        _network: BTreeMap<String, bool>,
        failure_policy: FailurePolicy,
        replicated_jobs: Vec<ReplicatedJob>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct FailurePolicy {
        max_restarts: u32,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct ReplicatedJob {
        #[serde(rename = "name")]
        _name: String,
        replicas: u32,
        template: JobTemplate,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct JobTemplate {
        spec: JobSpec,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct TrainJobSpec {
        runtime_ref: BTreeMap<String, String>,
        trainer: Trainer,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Trainer {
        image: String,
        command: Vec<String>,
        num_nodes: u32,
        num_proc_per_node: u32,
        env: Vec<EnvVar>,
        resources_per_node: Option<Resources>,
    }

    fn example() -> Manifests {
        let words = [
            "image=r.example/allranks:1",
            "devices=nvidia.com/gpu:8",
            "namespace=lab",
        ];
        let options = PodOptions::read(&words.map(str::to_owned)).unwrap();
        Manifests::new("20261125_101500", 4, options)
    }

    #[test]
    fn the_commands_are_words_of_a_shell() {
        let commands = example().commands(Path::new("my runs/c.json"), Path::new("my runs/k"));
        let name = "allranks-20261125-101500";
        let expected = format!(
            "run: kubectl create secret generic {name} '--from-file=credentials.json=my runs/c.json' -n lab && \
             kubectl apply -f 'my runs/k/job.yaml' -n lab (or jobset.yaml, or trainjob.yaml); \
             afterwards, with the same file: kubectl delete -f 'my runs/k/job.yaml' -n lab && kubectl delete secret {name} -n lab"
        );
        assert_eq!(commands, expected);
    }

    fn read<Spec: for<'de> Deserialize<'de>>(text: &str, version: &str, kind: &str) -> Spec {
        let object: Object<Spec> =
            serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(
            (object.api_version.as_str(), object.kind.as_str()),
            (version, kind)
        );
        assert_eq!(object.metadata.name, "allranks-20261125-101500");
        assert_eq!(object.metadata.namespace.as_deref(), Some("lab"));
        object.spec
    }

    fn assert_env(env: &[EnvVar]) {
        assert_eq!(env[0].name, CREDENTIALS);
        assert!(env[0].value.is_none(), "a secret in a manifest");
        let from = &env[0].value_from.as_ref().unwrap().secret_key_ref;
        assert_eq!(
            (from.name.as_str(), from.key.as_str()),
            ("allranks-20261125-101500", SECRET_KEY)
        );
        assert_eq!(
            (env[1].name.as_str(), env[1].value.as_deref()),
            ("ALLRANKS_NODES", Some("4"))
        );
        assert!(env[1].value_from.is_none());
    }

    fn assert_job(job: &JobSpec, subdomain: Option<&str>) {
        assert_eq!(
            (job.completions, job.parallelism, job.backoff_limit),
            (4, 4, 0)
        );
        assert_eq!(job.completion_mode, "Indexed");
        let pod = &job.template.spec;
        assert_eq!(pod.restart_policy, "Never");
        assert_eq!(pod.subdomain.as_deref(), subdomain);
        assert!(job.template.metadata.labels.contains_key("allranks-run"));
        let [agent] = &pod.containers[..] else {
            panic!("one agent in each Pod")
        };
        assert_eq!(agent.image, "r.example/allranks:1");
        assert_eq!(agent.command, ["allranks", "node"]);
        assert_env(&agent.env);
        assert_eq!(
            agent.resources.limits.as_ref().unwrap()["nvidia.com/gpu"],
            8
        );
        let (mount, volume) = (&agent.volume_mounts[0], &pod.volumes[0]);
        assert_eq!(
            (mount.mount_path.as_str(), &mount.name),
            ("/dev/shm", &volume.name)
        );
        assert_eq!(
            (
                volume.empty_dir.medium.as_str(),
                volume.empty_dir.size_limit.as_str()
            ),
            ("Memory", "8Gi")
        );
    }

    #[test]
    fn manifests_are_of_their_schemas() {
        let folder = tempfile::tempdir().unwrap();
        let written = example().write(folder.path()).unwrap();
        let texts: Vec<String> = written
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        let (service, job) = texts[0].split_once("---\n").unwrap();
        let service: ServiceSpec = read(service, "v1", "Service");
        assert_eq!(service.cluster_ip, "None");
        let job: JobSpec = read(job, "batch/v1", "Job");
        assert_eq!(service.selector, job.template.metadata.labels);
        assert_job(&job, Some("allranks-20261125-101500"));
        let set: JobSetSpec = read(&texts[1], "jobset.x-k8s.io/v1alpha2", "JobSet");
        assert_eq!(set.failure_policy.max_restarts, 0);
        let [nodes] = &set.replicated_jobs[..] else {
            panic!("one Job")
        };
        assert_eq!(nodes.replicas, 1);
        assert_job(&nodes.template.spec, None);
        let train: TrainJobSpec = read(&texts[2], "trainer.kubeflow.org/v1alpha1", "TrainJob");
        assert_eq!(train.runtime_ref["name"], "torch-distributed");
        let trainer = train.trainer;
        assert_eq!((trainer.num_nodes, trainer.num_proc_per_node), (4, 1));
        assert_eq!(trainer.image, "r.example/allranks:1");
        assert_eq!(trainer.command, ["allranks", "node"]);
        assert!(trainer.resources_per_node.is_some());
        assert_env(&trainer.env);
    }

    #[test]
    fn names_are_such_that_pods_can_have_them() {
        let long = "x".repeat(80);
        let name = Manifests::new(&long, 1, PodOptions::read(&[]).unwrap()).name;
        assert_eq!(name.len(), LONGEST);
        let name = Manifests::new("Run 7.", 1, PodOptions::read(&[]).unwrap()).name;
        assert_eq!(name, "allranks-run-7");
    }
}
