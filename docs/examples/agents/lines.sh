#!/bin/sh
# Lines without a library of JSON: enough for an agent that does not read its message.
#
# peregrine serve --agent 'uptime=exec+jsonl:sh lines.sh'

while read -r line; do
  case $line in
  '{"type":"turn"'*)
    turn=${line#*'"turn":"'}
    printf '{"turn":"%s","message":"up for %s s"}\n' "${turn%%\"*}" "$(cut -d. -f1 /proc/uptime)"
    ;;
  esac
done
