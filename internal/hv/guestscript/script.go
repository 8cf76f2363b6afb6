// Package guestscript runs commands in guests whose agent, SSH server or command-line client cannot
// do all that hv.Driver.Exec promises: exit codes that are never ambiguous, outputs that a
// background child does not delay, and a time-out that ends the whole command.
//
// It is the text of shell scripts for the guest and the code that reads what they print. It knows no
// hypervisor and opens no connection: the caller passes the function that runs a program in the
// guest.
//
// Invariant: a result is returned only when the guest has reported it; everything else is an error.
package guestscript

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
)

var (
	//go:embed wrapper.sh
	wrapperText string
	//go:embed environment.sh
	environmentText string
	//go:embed killer.sh
	killerText string
	//go:embed releaser.sh
	releaserText string
)

// reportText ends the script of a command whose client does not report exit codes reliably.
const reportText = `printf '%s %s\n' "$name" "$code" >&2` + "\n"

// CommandArgs returns the program that runs a command in a guest whose agent reports exit codes and
// passes the environment and stdin. name is a result of NewName.
func CommandArgs(name string, cmd hv.Command) []string {
	return shellArgs(noInputPipe+wrapperText+"exit $code\n", name, append([]string{cmd.Path}, cmd.Args...)...)
}

const (
	inputPipe   = "i"          // in the directory of a command that gets its stdin later
	noInputPipe = "input=''\n" // whatever the environment of the guest says
)

// AwaitingArgs is CommandArgs for a command whose program starts with a pipe for stdin, which is opened when its
// writer has opened it, too. InputPipes says where it is.
func AwaitingArgs(name string, cmd hv.Command) []string {
	return shellArgs("input="+inputPipe+"\n"+wrapperText+"exit $code\n", name,
		append([]string{cmd.Path}, cmd.Args...)...)
}

// InputPipes returns the paths of which one is the pipe of a command of AwaitingArgs, soon after its start.
func InputPipes(name string) []string {
	var paths []string
	for _, dir := range []string{"/tmp", "/var/tmp", "/run"} { // as in wrapper.sh
		paths = append(paths, path.Join(dir, name, inputPipe))
	}
	return paths
}

// ReleaseArgs returns the program that ends the input of a command of AwaitingArgs. Exit code 1: the guest has no such
// command.
func ReleaseArgs(name string) []string { return shellArgs(releaserText, name, InputPipes(name)...) }

// KillArgs returns the program that kills the command with this name and everything it has started
// in its session. Exit code 1: the guest has no such command.
func KillArgs(name string) []string { return shellArgs(killerText, name) }

// reportingArgs returns the program that runs a command, takes its environment from the head of
// stdin, and reports its exit code in the last line of stderr.
func reportingArgs(name string, cmd hv.Command) []string {
	return shellArgs(environmentText+noInputPipe+wrapperText+reportText, name,
		append([]string{cmd.Path}, cmd.Args...)...)
}

func shellArgs(text, name string, args ...string) []string {
	return append([]string{"/bin/sh", "-c", text, "sh", name}, args...)
}

// NewName returns a name for a command that no guest can guess beforehand.
func NewName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return ".exec-" + hex.EncodeToString(b[:])
}

// encodeEnvironment returns what environment.sh reads.
func encodeEnvironment(env []string) string {
	var b strings.Builder
	for _, kv := range env {
		for _, c := range []byte(kv) {
			if isPlain(c) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, `\0%03o`, c)
			}
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.String()
}

// isPlain reports whether printf %b prints a byte as it is.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_=./:-, ", c) >= 0
}
