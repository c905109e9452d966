"""The official Anthropic client for Python against a gateway. Arguments: SCENARIO BASE_URL MODEL."""

import anthropic
from simulated import failure_of, main

HELLO = [{"role": "user", "content": "Hello"}]


def messages(base_url, model):
    client = anthropic.Anthropic(base_url=base_url, api_key="key-of-the-client", max_retries=0)
    create = client.messages.create
    message = create(model=model, messages=HELLO, max_tokens=12, system="Be brief.")
    with client.messages.stream(model=model, messages=HELLO, max_tokens=9) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
        streamed_id = stream.response.headers["x-request-id"]
    counted = client.messages.count_tokens(model=model, messages=HELLO)

    def read_a_cut_stream():
        question = [{"role": "user", "content": "fault cut"}]
        for _ in create(model=model, messages=question, max_tokens=400, stream=True):
            pass

    return {
        "message": {
            "text": message.content[0].text,
            "usage": message.usage.model_dump(),
            "stop_reason": message.stop_reason,
            "request_id": message._request_id,
        },
        "streamed": {
            "text": text,
            "final": final.content[0].text,
            "usage": final.usage.model_dump(),
            "request_id": streamed_id,
        },
        "counted": counted.input_tokens,
        "unknown_model": failure_of(lambda: create(model="nobody", messages=HELLO, max_tokens=1)),
        "no_model": failure_of(lambda: create(model="", messages=HELLO, max_tokens=1)),
        "pool_full": failure_of(lambda: create(model="full", messages=HELLO, max_tokens=1)),
        "cut_stream": failure_of(read_a_cut_stream),
    }


main({messages.__name__: messages})
