package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// commands are the cases of the names of commands and flags.
func commands(b *builds) group {
	g := group{name: "commands"}
	for _, program := range programNames {
		g.steps = append(g.steps, step{name: program, loose: true, play: func(ctx context.Context) (string, error) {
			return compareHelp(ctx, b, program)
		}})
	}
	return g
}

// compareHelp walks the help of the old program and requires every command and flag of the new one.
func compareHelp(ctx context.Context, b *builds, program string) (string, error) {
	old, err := walkHelp(ctx, b.old.path(program))
	if err != nil {
		return "", err
	}
	flags := 0
	var missing []string
	for _, path := range slices.Sorted(maps.Keys(old)) {
		lost, err := missingNames(ctx, b.new.path(program), path, old[path])
		if err != nil {
			return "", err
		}
		flags += len(old[path].flags)
		missing = append(missing, lost...)
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("the new program does not have:\n%s", strings.Join(missing, "\n"))
	}
	return fmt.Sprintf("%d commands with %d flags exist", len(old), flags), nil
}

// help is what a program says of one of its commands.
type help struct {
	flags    []string // with their dashes, short and long
	commands []string
	calling  []string // those of the commands that call a service
	aliases  []string
}

var (
	helpFlag    = regexp.MustCompile(`^\s+(?:(-\w), )?\s*(--[a-z0-9][a-z0-9-]*)(?:\s|$)`)
	helpCommand = regexp.MustCompile(`^  ([a-z][a-z0-9-]*) +\S`)
	helpSection = regexp.MustCompile(`^([A-Z][A-Za-z ]*):$`)
)

// walkHelp returns the help of a program's commands by their paths.
func walkHelp(ctx context.Context, program string) (map[string]help, error) {
	all := map[string]help{}
	var walk func(path []string) error
	walk = func(path []string) error {
		h, err := readHelp(ctx, program, path)
		if err != nil {
			return err
		}
		all[strings.Join(path, " ")] = h
		for _, name := range h.commands {
			if err := walk(append(slices.Clone(path), name)); err != nil {
				return err
			}
		}
		return nil
	}
	return all, walk(nil)
}

// readHelp reads the help of a command.
func readHelp(ctx context.Context, program string, path []string) (h help, err error) {
	res, err := execute(ctx, nil, program, append(slices.Clone(path), "--help")...)
	if err != nil || res.code != 0 {
		return h, fmt.Errorf("%s %s --help: status %d %w", program, strings.Join(path, " "), res.code, err)
	}
	section := ""
	for line := range strings.SplitSeq(res.stdout, "\n") {
		// The text before the usage may have lines that look like sections.
		if m := helpSection.FindStringSubmatch(line); m != nil && (section != "" || m[1] == "Usage") {
			section = m[1]
			continue
		}
		switch {
		case strings.HasSuffix(section, "Flags"):
			if m := helpFlag.FindStringSubmatch(line); m != nil {
				h.flags = append(h.flags, m[2])
				if m[1] != "" {
					h.flags = append(h.flags, m[1])
				}
			}
		case section == "Aliases" && line != "":
			h.aliases = append(h.aliases, strings.Split(strings.TrimSpace(line), ", ")...)
		case section != "Usage" && section != "Examples" && section != "Aliases" && section != "":
			if m := helpCommand.FindStringSubmatch(line); m != nil && m[1] != "help" {
				h.commands = append(h.commands, m[1])
				if section == cloudSection {
					h.calling = append(h.calling, m[1])
				}
			}
		}
	}
	return h, nil
}

// missingNames returns what a command of the new program lacks. Hidden commands and flags are not in
// the help, but are accepted.
func missingNames(ctx context.Context, program, path string, old help) (missing []string, err error) {
	words := strings.Fields(path)
	res, err := execute(ctx, nil, program, append(slices.Clone(words), "--help")...)
	if err != nil {
		return nil, err
	}
	if res.code != 0 || !strings.Contains(res.stdout, "Usage:\n  "+strings.TrimSpace(lastWord(program)+" "+path)) {
		return []string{"command " + path}, nil
	}
	for _, flag := range old.flags {
		if strings.Contains(res.stdout, " "+flag+" ") || strings.Contains(res.stdout, " "+flag+",") {
			continue
		}
		probe := flag + "=x"
		if len(flag) == 2 {
			probe = flag
		}
		got, err := execute(ctx, nil, program, append(slices.Clone(words), probe, "--help")...)
		if err != nil {
			return nil, err
		}
		if strings.Contains(got.stderr, "unknown flag") || strings.Contains(got.stderr, "unknown shorthand flag") {
			missing = append(missing, "flag "+strings.TrimSpace(path+" "+flag))
		}
	}
	for _, alias := range old.aliases {
		if !slices.Contains(strings.FieldsFunc(res.stdout,
			func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }), alias) {
			missing = append(missing, "alias "+alias+" of "+path)
		}
	}
	return missing, nil
}

func lastWord(path string) string { return path[strings.LastIndex(path, "/")+1:] }
