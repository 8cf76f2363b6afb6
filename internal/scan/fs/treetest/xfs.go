package treetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// XFSProgram returns the path of a program of xfsprogs, or skips the test.
func XFSProgram(t testing.TB, name string) string {
	t.Helper()
	return program(t, name, "xfsprogs")
}

// XFSProto returns a list of the files of a directory for mkfs.xfs -p, and what the file system has then. Such a
// list has no names with white space, each name in it is a separate file, and the files are new ones.
func XFSProto(dir string) (proto string, want List, err error) {
	p := protoWriter{top: dir}
	if p.want, err = ListDir(dir); err != nil {
		return "", nil, err
	}
	p.want.ForgetTimes()
	p.WriteString("boot\n0 0\nd--755 0 0\n")
	if err := p.writeDir(""); err != nil {
		return "", nil, err
	}
	p.WriteString("$\n")
	return p.String(), p.want, nil
}

// ForgetTimes removes the times of all files.
func (l List) ForgetTimes() {
	for name, it := range l {
		it.MTime = 0
		l[name] = it
	}
}

// protoWriter writes such a list.
type protoWriter struct {
	strings.Builder
	top  string
	want List
}

const (
	maxProtoFile   = 2 << 20 // mkfs.xfs has a file in memory
	maxProtoTarget = 150     // mkfs.xfs 6.1 makes no valid symbolic link that is not in its inode
)

func (p *protoWriter) writeDir(dir string) error {
	entries, err := os.ReadDir(filepath.Join(p.top, dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil {
			return err
		}
		if strings.ContainsAny(e.Name(), " \t\n") || e.Name() == "$" || e.Name()[0] == ':' ||
			info.Size() > maxProtoFile || e.Type() == fs.ModeSymlink && info.Size() > maxProtoTarget {
			maps.DeleteFunc(p.want, func(below string, _ Item) bool {
				return below == name || strings.HasPrefix(below, name+"/")
			})
			continue
		}
		if err := p.writeEntry(name, info); err != nil {
			return err
		}
	}
	return nil
}

func (p *protoWriter) writeEntry(name string, info fs.FileInfo) error {
	it := p.want[name]
	it.Twin = ""
	p.want[name] = it
	source := filepath.Join(p.top, name)
	kind, rest := "-", source
	switch info.Mode().Type() {
	case 0:
	case fs.ModeDir:
		kind, rest = "d", ""
	case fs.ModeSymlink:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		kind, rest = "l", target
	case fs.ModeNamedPipe:
		kind, rest = "p", ""
	default:
		return fmt.Errorf("%s has the type %v", name, info.Mode())
	}
	fmt.Fprintf(p, "%s %s--%03o 0 0 %s\n", info.Name(), kind, info.Mode().Perm(), rest)
	if !info.IsDir() {
		return nil
	}
	err := p.writeDir(name)
	p.WriteString("$\n")
	return err
}

// ErrNoMount reports that nothing can be mounted here.
var ErrNoMount = errors.New("the file system cannot be mounted here")

// noMount is the exit status of the script when nothing can be mounted.
const noMount = 77

// fillScript mounts the image $1 on $2, copies the directory $3 to it, and runs the commands $4 there.
const fillScript = `mount -o loop "$1" "$2" || exit 77
cp -a "$3/." "$2" && cd "$2" && sh -ec "$4" && cd / && umount "$2"`

// Fill mounts the file system in an image where no other process sees it, copies a directory to it, and runs
// commands in its root. The error wraps ErrNoMount where that needs more rights, or another kernel.
func Fill(ctx context.Context, image, dir, commands string) error {
	top, err := os.MkdirTemp("", "mounted-")
	if err != nil {
		return err
	}
	defer os.Remove(top)
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", fillScript, "sh", image, top, dir, commands)
	cmd.Env = append(os.Environ(), "IMAGE="+image)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if os.Geteuid() != 0 || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == noMount {
		return fmt.Errorf("%w: %s", ErrNoMount, out)
	}
	return fmt.Errorf("fill %s: %w: %s", image, err, out)
}
