#!/bin/sh
# The simple form: text on stdin, the answer on stdout, an exit code that is not 0 for a failure.
#
# peregrine serve --agent 'shout=exec:sh shout.sh'

text=$(cat)
if [ -z "$text" ]; then
  echo "there is nothing to shout" >&2
  exit 1
fi
printf '%s!\n' "$text" | tr a-z A-Z
