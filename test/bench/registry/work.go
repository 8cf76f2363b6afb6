package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// diskName is the name of the disk in every version.
const diskName = "disk.img"

// order is one transfer for a separate process.
type order struct {
	Registry string
	Template string // id
	Tag      string
	Image    string // push: the disk
	Root     string // push: of its layer, when it is known
	Parent   string // push: chain ID of what the disk was made from
	Below    string // push, pull: the disk of Parent or of Held
	Dir      string // pull: where to
	Held     string // pull: chain ID of what is in Below
}

// outcome is the result of an order.
type outcome struct {
	Seconds float64
	Bytes   int64               // moved by a pull
	Root    string              // of the layer that was pushed
	Built   *transfer.BuiltFile // by a pull
	Memory  int64               // most that was resident
}

// work runs the order on standard input and writes its outcome to standard output.
func work(ctx context.Context, out io.Writer) error {
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	c, err := transfer.New(transfer.Options{BaseURL: o.Registry})
	if err != nil {
		return err
	}
	defer c.Close()
	began := time.Now()
	do := push
	if o.Dir != "" {
		do = pull
	}
	result, err := do(ctx, c, o)
	if err != nil {
		return err
	}
	result.Seconds = time.Since(began).Seconds()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return fmt.Errorf("read what was used: %w", err)
	}
	result.Memory = used.Maxrss << 10
	return json.NewEncoder(out).Encode(result)
}

func push(ctx context.Context, c *transfer.Client, o order) (outcome, error) {
	file := transfer.PushFile{Name: diskName, Kind: api.FileDisk, Disk: &diskfile.Disk{Path: o.Image}, ChainID: o.Root}
	if o.Parent != "" {
		file.Parent = &transfer.PushParent{ChainID: o.Parent, Disk: &diskfile.Disk{Path: o.Below}}
	}
	roots := map[string]string{}
	_, err := c.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{ID: o.Template, Name: "bench", Tag: o.Tag, Config: json.RawMessage(`{}`)},
		Files:   []transfer.PushFile{file}, LayerDigests: roots,
	})
	return outcome{Root: roots[diskName]}, err
}

func pull(ctx context.Context, c *transfer.Client, o order) (outcome, error) {
	options := transfer.PullOptions{
		Ref: transfer.VersionRef{ID: o.Template, Tag: o.Tag}, Dir: o.Dir, AllowOverlays: true,
	}
	if o.Held != "" {
		options.LocalContent = map[string]diskfile.Disk{o.Held: {Path: o.Below}}
	}
	result, err := c.Pull(ctx, options)
	if err != nil {
		return outcome{}, err
	}
	if len(result.Files) != 1 {
		return outcome{}, fmt.Errorf("the version has %d files", len(result.Files))
	}
	return outcome{Bytes: result.TransferredBytes, Built: &result.Files[0]}, nil
}

// send runs an order in a separate process.
func send(ctx context.Context, o order) (out outcome, err error) {
	self, err := os.Executable()
	if err != nil {
		return out, err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, self, childTransfer)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(raw)), &stderr
	answer, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("transfer of %s: %w: %s", o.Tag, err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, errors.New("the transfer's answer is none")
	}
	return out, nil
}
