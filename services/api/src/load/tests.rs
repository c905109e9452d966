use super::*;

const MINIMAL: &str = r"
apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1
kind: InferenceGatewayConfig
metadata: {name: chat}
spec:
  bbr: {enabled: true}
  schedulers:
  - name: llama
    modelName: llama
    modelSelector: {matchLabels: {app: llama}}
";

#[test]
fn smoke() {
    println!("{:#?}", load(&[Source { name: "a.yaml".into(), text: MINIMAL.into() }]).unwrap());
}
