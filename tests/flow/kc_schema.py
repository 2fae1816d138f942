"""What kc prints with --json, against the schema that `kc schema` publishes, and more strictly: a member that the schema does
not tell is refused, so that what is published is all there is."""
import json, os, subprocess

from kc_flow import BIN

try:
    import jsonschema
except ImportError:  # python3-jsonschema; test_schemas.py says so
    jsonschema = None

_validators = {}


def close(schema):
    """The schema without room for members that it does not name."""
    if isinstance(schema, dict):
        closed = {k: v if k == "const" else close(v) for k, v in schema.items()}
        if "properties" in schema:
            closed.setdefault("additionalProperties", False)
        return closed
    return [close(s) for s in schema] if isinstance(schema, list) else schema


def published(verb):
    return json.loads(subprocess.run([os.path.join(BIN, "kc"), "schema", *verb.split()], stdout=subprocess.PIPE, check=True).stdout)


def validator(name):
    """"kc.snap.ls/1" → what holds its answers."""
    if name not in _validators:
        schema = close(published(name[3:-2].replace(".", " ")))
        _validators[name] = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    return _validators[name]


def check(text):
    """Each line is an object that its schema tells. Returns their names."""
    names = set()
    for line in text.splitlines() if jsonschema else []:
        answer = json.loads(line)
        errors = sorted(validator(answer["schema"]).iter_errors(answer), key=lambda e: len(e.absolute_path))
        if errors:
            worst = jsonschema.exceptions.best_match(errors)
            raise AssertionError(f"{answer['schema']}: {worst.json_path}: {worst.message}"[:2000])
        names.add(answer["schema"])
    return names
