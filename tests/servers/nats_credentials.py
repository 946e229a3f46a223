"""Prints credentials for NATS as JSON: an NKey user, and an operator, account and user for JWTs. All are new at each run."""

import base64
import hashlib
import json
import os
import time

import nkeys


def new_key(prefix):
    seed = bytes(nkeys.encode_seed(os.urandom(32), prefix))
    return seed.decode(), nkeys.from_seed(bytearray(seed))


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(claims, issuer):
    claims |= {"iat": int(time.time()), "iss": issuer.public_key.decode(), "jti": ""}
    digest = hashlib.new("sha512_256", json.dumps(claims).encode()).digest()
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    text = encode(b'{"typ":"JWT","alg":"ed25519-nkey"}') + "." + encode(json.dumps(claims).encode())
    return text + "." + encode(issuer.sign(text.encode()))


_, operator = new_key(nkeys.PREFIX_BYTE_OPERATOR)
_, account = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
seed, user = new_key(nkeys.PREFIX_BYTE_USER)
unlimited = ["subs", "data", "payload", "imports", "exports", "conn", "leaf", "disk_storage", "streams", "consumer"]
limits = {name: -1 for name in unlimited} | {"wildcards": True}


def claims(key, nats):
    return {"name": nats["type"], "sub": key.public_key.decode(), "nats": {"version": 2} | nats}


user_jwt = sign(claims(user, {"type": "user", "subs": -1, "data": -1, "payload": -1}), account)
print(json.dumps({
    "seed": seed,
    "public": user.public_key.decode(),
    "operator": sign(claims(operator, {"type": "operator"}), operator),
    "account": account.public_key.decode(),
    "account_jwt": sign(claims(account, {"type": "account", "limits": limits}), operator),
    "credentials": f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
                   f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n",
}))
