"""The official OpenAI client for Python against a gateway. Arguments: SCENARIO BASE_URL MODEL [SIM_ADMIN]."""

import asyncio
import time

import httpx2
import openai
from simulated import described, failure_of, main, milliseconds_until_gone


def connect(base_url, **options):
    return openai.OpenAI(base_url=base_url, api_key="key-of-the-client", **options)


def ask(text):
    return [{"role": "user", "content": text}]


def collected(stream):
    """A chat stream, read to its end."""
    text, usage, finish, chunks = "", None, None, 0
    for chunk in stream:
        chunks += 1
        usage = chunk.usage.model_dump() if chunk.usage else usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    request_id = stream.response.headers["x-request-id"]
    return {"text": text, "usage": usage, "finish": finish, "chunks": chunks, "request_id": request_id}


def apis(base_url, model):
    client = connect(base_url)
    chats, models = client.chat.completions, client.models
    chat = chats.create(model=model, messages=ask("Hello"), max_tokens=12)
    options = {"include_usage": True}
    stream = chats.create(model=model, messages=ask("Hi"), max_tokens=9, stream=True, stream_options=options)
    streamed = collected(stream)
    silent = collected(chats.create(model=model, messages=ask("Hey"), max_tokens=7, stream=True))
    completion = client.completions.create(model=model, prompt="Once", max_tokens=5)
    embeddings = client.embeddings.create(model=model, input=["one", "two"])
    response = client.responses.create(model=model, input="Hello there", max_output_tokens=8)
    events = [event.type for event in client.responses.create(model=model, input="Hello", max_output_tokens=4, stream=True)]
    speech = client.audio.transcriptions.create(model=model, file=("a.wav", b"RIFF" + bytes(4000)))
    adapter = chats.create(model="sql-adapter", messages=ask("SELECT"), max_tokens=3)
    return {
        "chat": {
            "text": chat.choices[0].message.content,
            "usage": chat.usage.model_dump(),
            "model": chat.model,
            "request_id": chat._request_id,
        },
        "streamed": streamed,
        "silent": silent,
        "completion": {
            "text": completion.choices[0].text,
            "usage": completion.usage.model_dump(),
            "request_id": completion._request_id,
        },
        "embeddings": {
            "count": len(embeddings.data),
            "numbers": len(embeddings.data[0].embedding),
            "are_numbers": all(isinstance(number, float) for number in embeddings.data[1].embedding),
            "request_id": embeddings._request_id,
        },
        "response": {"text": response.output_text, "status": response.status, "request_id": response._request_id},
        "response_events": events,
        "speech": {"text": speech.text, "request_id": speech._request_id},
        "adapter": {"model": adapter.model, "request_id": adapter._request_id},
        "models": sorted(entry.id for entry in models.list()),
        "retrieved": [models.retrieve(name).id for name in (model, "sql-adapter")],
    }


def failures(base_url, model):
    client = connect(base_url, max_retries=0)

    def chat(text, name=model, **options):
        return failure_of(lambda: client.chat.completions.create(model=name, messages=ask(text), **options))

    def chunks(text):
        texts = []

        def read():
            for chunk in client.chat.completions.create(model=model, messages=ask(text), max_tokens=400, stream=True):
                texts.extend(choice.delta.content for choice in chunk.choices if choice.delta.content)

        return failure_of(read) | {"texts": len(texts)}

    nobody = connect("http://127.0.0.1:1/v1", max_retries=0)
    return {
        "unknown_model": chat("hi", "nobody"),
        "no_model": chat("hi", ""),
        "engine_refuses": chat("hi", max_tokens=-1),
        "too_large": chat("x" * 300_000),
        "unknown_path": failure_of(client.files.list),
        "unknown_model_retrieved": failure_of(lambda: client.models.retrieve("no/body")),
        "pool_full": chat("hi", "full"),
        "unreachable": chat("hi", "down"),
        "upstream_500": chat("fault 500"),
        "broke": chat("fault reset"),
        "timed_out": chat("fault hang"),
        "cut_stream": chunks("fault cut"),
        "stalled_stream": chunks("fault stall"),
        "error_event": chunks("fault event"),
        "upstream_503": chat("fault 503"),
        "upstream_429": chat("fault 429"),
        "nobody_there": failure_of(nobody.models.list),
    }


def retries(base_url, model):
    client = connect(base_url)

    def chat(text, name=model):
        return client.chat.completions.create(model=name, messages=ask(text), max_tokens=3)._request_id

    seen = {
        "after_429": chat("again after 429"),
        "after_500": chat("again after 500"),
        "after_reset": chat("again after reset"),
        "told_not_to": failure_of(lambda: chat("hi", "strict")),
    }
    began = time.monotonic()
    failure_of(lambda: chat("hi", "down"))
    return seen | {"down_ms": 1000 * (time.monotonic() - began)}


def leaving(base_url, model, sim_admin):
    client = connect(base_url, max_retries=0)
    gone = {}

    def request(name, text):
        return {"model": model, "messages": ask(text), "max_tokens": 400, "extra_headers": {"x-request-id": name}}

    slow = client.with_options(timeout=0.5)
    timeout = failure_of(lambda: slow.chat.completions.create(**request("left-by-timeout", "fault hang")))
    gone["left-by-timeout"] = milliseconds_until_gone(sim_admin, "left-by-timeout")

    with client.chat.completions.create(**request("left-stream", "fault slow"), stream=True) as stream:
        for number, _ in enumerate(stream):
            if number == 2:
                break
    gone["left-stream"] = milliseconds_until_gone(sim_admin, "left-stream")

    async def cancelled():
        async with openai.AsyncOpenAI(base_url=base_url, api_key="key", max_retries=0) as other:
            call = other.chat.completions.create(**request("left-by-cancel", "fault hang"))
            try:
                await asyncio.wait_for(call, 0.5)
                raise SystemExit("a call to a server that hangs came back")
            except asyncio.TimeoutError:
                gone["left-by-cancel"] = await asyncio.to_thread(milliseconds_until_gone, sim_admin, "left-by-cancel")

    asyncio.run(cancelled())
    return {"timeout": timeout, "gone_ms": gone}


def concurrent(base_url, model):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=base_url, api_key="key", max_retries=0) as client:

            async def one(number):
                call = {"model": model, "messages": ask(f"{number}: hello"), "max_tokens": 20}
                if number % 2:
                    return (await client.chat.completions.create(**call)).choices[0].message.content
                text = ""
                async for chunk in await client.chat.completions.create(**call, stream=True):
                    text += "".join(choice.delta.content or "" for choice in chunk.choices)
                return text

            return await asyncio.gather(*(one(number) for number in range(24)))

    return {"texts": asyncio.run(all_of_them())}


def http2(base_url, model):
    versions = []
    hooks = {"response": [lambda response: versions.append(response.http_version)]}
    with httpx2.Client(http1=False, http2=True, event_hooks=hooks) as transport:
        client = connect(base_url, http_client=transport, max_retries=0)
        chat = client.chat.completions.create(model=model, messages=ask("Hello"), max_tokens=12)
        stream = client.chat.completions.create(model=model, messages=ask("Hi"), max_tokens=9, stream=True)
        streamed = collected(stream)
        missing = failure_of(lambda: client.models.retrieve("nobody"))
    return {"versions": versions, "request_id": chat._request_id, "streamed": streamed, "missing": missing}


def plain(base_url, model):
    client = connect(base_url, max_retries=0)
    chat = client.chat.completions.create(model=model, messages=ask("Hello"), max_tokens=4)
    names = [entry.id for entry in client.models.list()]
    try:
        client.chat.completions.create(model="closed", messages=ask("Hello"))
        denied = None
    except openai.OpenAIError as error:
        denied = described(error)
    return {"text": chat.choices[0].message.content, "usage": chat.usage.model_dump(), "models": names, "denied": denied}


main({scenario.__name__: scenario for scenario in (apis, failures, retries, leaving, concurrent, http2, plain)})
