//! Names that the controller writes into a cluster and the data plane looks for: one list, so that both sides agree.

/// API group of the product's own kinds.
pub const GROUP: &str = "inference.sagemaker.aws.amazon.com";
/// Version of `InferenceGatewayConfig`.
pub const CONFIG_VERSION: &str = "v1alpha1";
/// `spec.controllerName` of our GatewayClass, and `controllerName` in every status entry that is ours.
pub const CONTROLLER_NAME: &str = "inference.sagemaker.aws.amazon.com/inference-gateway-controller";
/// The GatewayClass that an installation brings.
pub const GATEWAY_CLASS: &str = "inference-gateway";
/// Where the controller and every data plane run, unless the installation says otherwise.
pub const SYSTEM_NAMESPACE: &str = "hyperpod-inference-system";

/// On every object that the controller made: [`MANAGED_BY`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`], and the field manager of server-side apply.
pub const MANAGED_BY: &str = "inference-gateway-controller";
/// On objects made for a config: its name.
pub const CONFIG_NAME_LABEL: &str = "inference.sagemaker.aws.amazon.com/config-name";
/// On objects made for a config: its namespace.
pub const CONFIG_NAMESPACE_LABEL: &str = "inference.sagemaker.aws.amazon.com/config-namespace";
/// On objects made for a config's scheduler: its name.
pub const SCHEDULER_LABEL: &str = "inference.sagemaker.aws.amazon.com/scheduler";
/// On objects of a data plane: the name of its Gateway. Operators find the Service by it.
pub const GATEWAY_NAME_LABEL: &str = "gateway.envoyproxy.io/owning-gateway-name";
/// On objects of a data plane: the namespace of its Gateway.
pub const GATEWAY_NAMESPACE_LABEL: &str = "gateway.envoyproxy.io/owning-gateway-namespace";
/// On ConfigMaps that list adapters: `"true"`.
pub const ADAPTERS_LABEL: &str = "inference.networking.k8s.io/bbr-managed";

/// Longest name of an object whose name is also a label's value or a DNS label.
pub const NAME_MAX: usize = 63;
/// Hexadecimal digits that tell apart names that were cut.
const HASH_DIGITS: usize = 8;

/// Added to a listener's port where a process may not bind it: below 1024, the port inside the pod is this much higher.
pub const PRIVILEGED_PORT_SHIFT: u16 = 10_000;

/// Port of the admin API inside a data plane pod: no listener can have it.
pub const ADMIN_PORT: u16 = 9090;

/// Port that a data plane pod listens on for a listener's port.
#[must_use]
pub const fn pod_port(listener: u16) -> u16 {
    if listener < 1024 { listener + PRIVILEGED_PORT_SHIFT } else { listener }
}

/// Name of the picker Service of a scheduler.
#[must_use]
pub fn picker_service(scheduler: &str) -> String {
    fitted(&format!("{scheduler}-epp"))
}

/// Name of the objects (Deployment, Service, …) that carry a Gateway's requests.
#[must_use]
pub fn data_plane(gateway_namespace: &str, gateway: &str) -> String {
    // The hash is of both parts, so that `a-b/c` and `a/b-c` differ.
    let readable = format!("igw-{gateway}");
    let hash = hash(&format!("{gateway_namespace}/{gateway}"));
    let room = NAME_MAX - HASH_DIGITS - 1 - "-metrics".len();
    format!("{}-{hash}", cut(&readable, room))
}

/// A name as it is if it fits into [`NAME_MAX`], else cut, with a hash of the whole at its end.
#[must_use]
pub fn fitted(name: &str) -> String {
    if name.len() <= NAME_MAX {
        return name.to_owned();
    }
    format!("{}-{}", cut(name, NAME_MAX - HASH_DIGITS - 1), hash(name))
}

fn cut(name: &str, bytes_max: usize) -> &str {
    let end = name.len().min(bytes_max);
    // Names of objects are ASCII; anything else would have been refused before.
    name.get(..end).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// FNV-1a, 64 bits, its upper half: names are not secrets, and the result must never change between releases.
fn hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:08x}", hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_stay_as_they_are_and_long_ones_stay_apart() {
        assert_eq!(picker_service("llama"), "llama-epp");
        let (one, two) = (format!("{}a", "x".repeat(62)), format!("{}b", "x".repeat(62)));
        assert!(picker_service(&one).len() <= NAME_MAX);
        assert_ne!(picker_service(&one), picker_service(&two));
    }

    #[test]
    fn data_planes_of_two_namespaces_differ_and_fit() {
        assert_ne!(data_plane("a", "gw"), data_plane("b", "gw"));
        assert_ne!(data_plane("a-b", "c"), data_plane("a", "b-c"));
        assert!(data_plane("ns", &"g".repeat(253)).len() + "-metrics".len() <= NAME_MAX);
    }

    #[test]
    fn only_privileged_ports_move() {
        assert_eq!((pod_port(80), pod_port(443), pod_port(8080)), (10_080, 10_443, 8080));
    }
}
