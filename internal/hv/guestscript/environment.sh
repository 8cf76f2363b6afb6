# Reads the environment of the command from the head of stdin: escaped lines up to an empty one. The
# rest of stdin is for the command: read takes single bytes of a pipe.
while IFS= read -r line && [ -n "$line" ]; do
  line=$(printf '%b.' "$line") # the dot keeps line ends of a value
  export "${line%.}"
done
