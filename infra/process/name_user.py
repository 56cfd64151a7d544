"""Let Spark run as a user whose ID has no entry in the list of users, as in many containers.

In: a directory. Out: options for Java. Spark's libraries (Hadoop) get the user's name from a class of Java that asks
the system alone, and end with "invalid null input: name" whatever variables are set. The options put this class in its
place (compiled by javac 17: ``javac -g:none --patch-module jdk.security.auth=src -d out UnixSystem.java``)::

    package com.sun.security.auth.module;
    public class UnixSystem {
        public UnixSystem() { }
        public String getUsername() { return System.getProperty("user.name"); }
        public long getUid() { return Long.getLong("regraft.uid", 0L); }
        public long getGid() { return Long.getLong("regraft.uid", 0L); }
        public long[] getGroups() { return new long[0]; }
    }
"""

from __future__ import annotations

import base64
import os
import pwd
import shlex
from pathlib import Path

from regraft.infra.process.find_user import find_user

MODULE, CLASS_FILE = "jdk.security.auth", Path("com/sun/security/auth/module/UnixSystem.class")
COMPILED = """
yv66vgAAAD0AJAoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWCAAIAQAJdXNlci5uYW1lCgAKAAsHAAwMAA0A
DgEAEGphdmEvbGFuZy9TeXN0ZW0BAAtnZXRQcm9wZXJ0eQEAJihMamF2YS9sYW5nL1N0cmluZzspTGphdmEvbGFuZy9TdHJpbmc7CAAQAQALcmVn
cmFmdC51aWQKABIAEwcAFAwAFQAWAQAOamF2YS9sYW5nL0xvbmcBAAdnZXRMb25nAQAlKExqYXZhL2xhbmcvU3RyaW5nO0opTGphdmEvbGFuZy9M
b25nOwoAEgAYDAAZABoBAAlsb25nVmFsdWUBAAMoKUoHABwBACdjb20vc3VuL3NlY3VyaXR5L2F1dGgvbW9kdWxlL1VuaXhTeXN0ZW0BAARDb2Rl
AQALZ2V0VXNlcm5hbWUBABQoKUxqYXZhL2xhbmcvU3RyaW5nOwEABmdldFVpZAEABmdldEdpZAEACWdldEdyb3VwcwEABCgpW0oAIQAbAAIAAAAA
AAUAAQAFAAYAAQAdAAAAEQABAAEAAAAFKrcAAbEAAAAAAAEAHgAfAAEAHQAAABIAAQABAAAABhIHuAAJsAAAAAAAAQAgABoAAQAdAAAAFgADAAEA
AAAKEg8JuAARtgAXrQAAAAAAAQAhABoAAQAdAAAAFgADAAEAAAAKEg8JuAARtgAXrQAAAAAAAQAiACMAAQAdAAAAEAABAAEAAAAEA7wLsAAAAAAA
AA==
"""


def java_options(directory: Path) -> str:
    """Return options that give Java the user's name and home, empty if the system knows the user; writes a class."""
    own_id = os.getuid()
    try:
        pwd.getpwuid(own_id)
    except KeyError:
        place = directory.absolute()
        file = place / CLASS_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(COMPILED))
        options = [f"--patch-module={MODULE}={place}", f"-Duser.name={find_user()}", f"-Dregraft.uid={own_id}"]
        return shlex.join([*options, f"-Duser.home={place}"])
    return ""


def name_user(directory: Path) -> None:
    """Give these options to Spark when this process starts it."""
    if options := java_options(directory):
        os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options}".lstrip()
