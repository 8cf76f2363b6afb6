package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// eachRPMHeader calls do for each header of the database of a system, as rpm exports it: with the number of a record,
// and the bytes that all forms of the database store.
func eachRPMHeader(ctx context.Context, tree string, do func(n uint32, header []byte) error) (err error) {
	const magicBytes, maxHeader = 8, 64 << 20
	cmd := exec.CommandContext(ctx, "rpmdb", "--root", tree, "--dbpath", "/"+rpmDir, "--define", "_db_backend sqlite",
		"--exportdb")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_, _ = io.Copy(io.Discard, out)
		err = errors.Join(err, cmd.Wait())
	}()
	r := bufio.NewReader(out)
	for n := uint32(1); ; n++ {
		head := make([]byte, magicBytes+8)
		if _, err := io.ReadFull(r, head); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		size := int64(binary.BigEndian.Uint32(head[8:]))*16 + int64(binary.BigEndian.Uint32(head[12:]))
		if string(head[:3]) != "\x8e\xad\xe8" || size > maxHeader {
			return fmt.Errorf("rpmdb exports a header of %d bytes that begins with %x", size, head)
		}
		header := append(make([]byte, 0, size+8), head[8:]...)
		header = header[:size+8]
		if _, err := io.ReadFull(r, header[8:]); err != nil {
			return err
		}
		if err := do(n, header); err != nil {
			return err
		}
	}
}

// toBerkeleyDB replaces the database by one of Berkeley DB, which the library that rpm used until version 4.16 writes.
// Record 0 has the highest number of the others. rpm must list the same packages in it.
func toBerkeleyDB(ctx context.Context, _ *site, tree string) error {
	before, err := listed(ctx, tree, "sqlite")
	if err != nil {
		return err
	}
	var rows strings.Builder
	last := uint32(0)
	if err := eachRPMHeader(ctx, tree, func(n uint32, header []byte) error {
		last = n
		fmt.Fprintf(&rows, " %x\n %x\n", binary.LittleEndian.AppendUint32(nil, n), header)
		return nil
	}); err != nil {
		return err
	}
	dump := filepath.Join(tree, "dump")
	text := "VERSION=3\nformat=bytevalue\ntype=hash\ndb_pagesize=4096\ndb_lorder=1234\nHEADER=END\n" +
		fmt.Sprintf(" 00000000\n %x\n", binary.LittleEndian.AppendUint32(nil, last)) + rows.String() + "DATA=END\n"
	if err := errors.Join(writeFile(dump, []byte(text)), emptyRPMDir(tree)); err != nil {
		return err
	}
	if _, err := rig.Output(ctx, "", "db5.3_load", "-f", dump, filepath.Join(tree, rpmDir, "Packages")); err != nil {
		return err
	}
	after, err := listed(ctx, tree, "bdb_ro")
	if err == nil && after != before {
		err = errors.New("rpm lists other packages in the database of Berkeley DB")
	}
	return errors.Join(err, os.Remove(dump))
}

// listed returns the packages that rpm lists.
func listed(ctx context.Context, tree, backend string) (string, error) {
	const script = `rpm --root "$1" --dbpath "$2" --define "_db_backend $3" -qa | LC_ALL=C sort`
	return rig.Output(ctx, "", "sh", "-c", script, "sh", tree, "/"+rpmDir, backend)
}

// emptyRPMDir removes the database.
func emptyRPMDir(tree string) error {
	dir := filepath.Join(tree, rpmDir)
	return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
}

// toNDB replaces the database by one of the form "ndb", which code of rpm writes that Debian's rpm leaves out.
func toNDB(ctx context.Context, s *site, tree string) error {
	var rows strings.Builder
	if err := eachRPMHeader(ctx, tree, func(n uint32, header []byte) error {
		fmt.Fprintf(&rows, "%d|%x\n", n, header)
		return nil
	}); err != nil {
		return err
	}
	if err := emptyRPMDir(tree); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.tools, "rpm-ndb"))
	cmd.Dir, cmd.Stdin = filepath.Join(tree, rpmDir), strings.NewReader(rows.String())
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rpm-ndb: %w: %s", err, text)
	}
	return nil
}
