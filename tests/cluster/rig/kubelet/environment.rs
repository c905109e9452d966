//! A container's variables: values, fields of its pod, keys of ConfigMaps and Secrets, and references among them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, ResourceFieldSelector, Secret};
use kube::{Api, Client};

/// What the variables of one container are read from.
pub(crate) struct Sources<'a> {
    pub client: &'a Client,
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub ip: &'a str,
    pub host_ip: &'a str,
}

impl Sources<'_> {
    /// All variables that the container names, in the order that references need.
    ///
    /// # Errors
    /// When something referred to is missing and not optional; the text is for the pod's status.
    pub(crate) async fn variables(&self) -> Result<BTreeMap<String, String>, String> {
        let mut variables = BTreeMap::new();
        for from in self.container.env_from.iter().flatten() {
            let prefix = from.prefix.as_deref().unwrap_or_default();
            let mut pairs = BTreeMap::new();
            if let Some(source) = &from.config_map_ref {
                pairs.extend(self.config_map(&source.name, source.optional).await?);
            }
            if let Some(source) = &from.secret_ref {
                pairs.extend(self.secret(&source.name, source.optional).await?);
            }
            variables.extend(pairs.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
        }
        for variable in self.container.env.iter().flatten() {
            if let Some(value) = self.value(variable, &variables).await? {
                variables.insert(variable.name.clone(), value);
            }
        }
        Ok(variables)
    }

    async fn value(&self, variable: &EnvVar, known: &BTreeMap<String, String>) -> Result<Option<String>, String> {
        match &variable.value_from {
            None => Ok(Some(expanded(variable.value.as_deref().unwrap_or_default(), known))),
            Some(source) => self.sourced(source).await,
        }
    }

    async fn sourced(&self, source: &EnvVarSource) -> Result<Option<String>, String> {
        if let Some(field) = &source.field_ref {
            return field_of(self.pod, &field.field_path, self.ip, self.host_ip).map(Some);
        }
        if let Some(resource) = &source.resource_field_ref {
            return Ok(Some(resource_of(self.container, resource)));
        }
        if let Some(key) = &source.config_map_key_ref {
            let pairs = self.config_map(&key.name, key.optional).await?;
            return picked(pairs, &key.key, key.optional, "ConfigMap", &key.name);
        }
        if let Some(key) = &source.secret_key_ref {
            let pairs = self.secret(&key.name, key.optional).await?;
            return picked(pairs, &key.key, key.optional, "Secret", &key.name);
        }
        Err("a variable has a source that this kubelet does not know".into())
    }

    async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<BTreeMap<String, String>, String> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = Api::<ConfigMap>::namespaced(self.client.clone(), namespace).get_opt(name).await;
        match found.map_err(|error| error.to_string())? {
            Some(map) => Ok(map.data.unwrap_or_default()),
            None if optional == Some(true) => Ok(BTreeMap::new()),
            None => Err(format!("configmap \"{name}\" not found")),
        }
    }

    async fn secret(&self, name: &str, optional: Option<bool>) -> Result<BTreeMap<String, String>, String> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(name).await;
        match found.map_err(|error| error.to_string())? {
            Some(secret) => {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value.0))).collect())
            }
            None if optional == Some(true) => Ok(BTreeMap::new()),
            None => Err(format!("secret \"{name}\" not found")),
        }
    }
}

fn picked(
    mut pairs: BTreeMap<String, String>,
    key: &str,
    optional: Option<bool>,
    kind: &str,
    name: &str,
) -> Result<Option<String>, String> {
    match pairs.remove(key) {
        Some(value) => Ok(Some(value)),
        None if optional == Some(true) => Ok(None),
        None => Err(format!("couldn't find key {key} in {kind} {name}")),
    }
}

/// A field of a pod, as the downward API names them.
///
/// # Errors
/// When it is no field that the downward API offers.
pub(crate) fn field_of(pod: &Pod, path: &str, ip: &str, host_ip: &str) -> Result<String, String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let keyed = |kind: &str| path.strip_prefix(kind)?.strip_prefix("['")?.strip_suffix("']");
    let of = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
    if let Some(key) = keyed("metadata.labels") {
        return Ok(of(&metadata.labels, key).unwrap_or_default());
    }
    if let Some(key) = keyed("metadata.annotations") {
        return Ok(of(&metadata.annotations, key).unwrap_or_default());
    }
    let value = match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" | "status.podIPs" => Some(ip.to_owned()),
        "status.hostIP" | "status.hostIPs" => Some(host_ip.to_owned()),
        "metadata.labels" => Some(listed(&metadata.labels)),
        "metadata.annotations" => Some(listed(&metadata.annotations)),
        _ => return Err(format!("{path} is no field of the downward API")),
    };
    Ok(value.unwrap_or_default())
}

fn listed(map: &Option<BTreeMap<String, String>>) -> String {
    map.iter().flatten().map(|(key, value)| format!("{key}={value:?}\n")).collect()
}

/// A limit or request of a container, in units of the divisor, rounded up; 0 if it has none.
fn resource_of(container: &Container, field: &ResourceFieldSelector) -> String {
    let resources = container.resources.as_ref();
    let (kind, name) = field.resource.split_once('.').unwrap_or(("limits", &field.resource));
    let set = match kind {
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => resources.and_then(|resources| resources.limits.as_ref()),
    };
    let amount = set.and_then(|set| set.get(name)).and_then(|quantity| quantity_of(&quantity.0)).unwrap_or_default();
    let divisor = field.divisor.as_ref().and_then(|divisor| quantity_of(&divisor.0)).filter(|&divisor| divisor > 0.0);
    format!("{}", (amount / divisor.unwrap_or(1.0)).ceil())
}

fn quantity_of(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match &text[end..] {
        "" => 1.0,
        "m" => 0.001,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        _ => return None,
    };
    Some(text[..end].parse::<f64>().ok()? * unit)
}

/// `text` with `$(NAME)` replaced where the name is known; `$$` stands for one dollar sign.
pub(crate) fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            result.push('$');
            rest = after;
            continue;
        }
        let named = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match named.and_then(|(name, after)| Some((variables.get(name)?, after))) {
            Some((value, after)) => {
                result.push_str(value);
                rest = after;
            }
            None => result.push('$'),
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_expanded_once_and_unknown_ones_stay() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())]);
        for (text, expected) in [
            ("x$(A)y", "x1y"),
            ("$(B)", "$(A)"),
            ("$(C)", "$(C)"),
            ("$$(A)", "$(A)"),
            ("cost: 5$", "cost: 5$"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expanded(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn fields_are_those_of_the_downward_api() {
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".into());
        pod.metadata.labels = Some(BTreeMap::from([("app.kubernetes.io/name".to_owned(), "m".to_owned())]));
        let field = |path: &str| field_of(&pod, path, "10.250.1.2", "10.250.0.1");
        assert_eq!(field("metadata.name").unwrap(), "p");
        assert_eq!(field("metadata.labels['app.kubernetes.io/name']").unwrap(), "m");
        assert_eq!(field("metadata.labels['absent']").unwrap(), "");
        assert_eq!(field("status.podIP").unwrap(), "10.250.1.2");
        assert!(field("spec.containers").is_err());
    }

    #[test]
    fn quantities_are_read_in_their_units() {
        assert_eq!(quantity_of("250m"), Some(0.25));
        assert_eq!(quantity_of("2Gi"), Some(2_147_483_648.0));
        assert_eq!(quantity_of("3"), Some(3.0));
        assert_eq!(quantity_of("3x"), None);
    }
}
