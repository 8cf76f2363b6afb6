package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// form is a storage format of a disk.
type form struct {
	name string
	open func(ctx context.Context, d *made) (opened, error)
}

var rawForm = []form{{"raw", func(_ context.Context, d *made) (opened, error) { return openImage(d.raw) }}}

var allForms = slices.Concat(rawForm, []form{
	converted("qcow2 v3", "-o", "compat=1.1"),
	converted("qcow2 v2", "-o", "compat=0.10"),
	converted("qcow2 zlib", "-c", "-o", "compression_type=zlib"),
	converted("qcow2 zstd", "-c", "-o", "compression_type=zstd"),
	converted("qcow2 extended", "-o", "extended_l2=on"),
	{"qcow2 chain", chain},
	{"template", template},
}, virtualForms())

// appleForms are those in which disks of Macs are passed on.
var appleForms = slices.Concat(rawForm, slices.DeleteFunc(virtualForms(), func(f form) bool {
	return !strings.HasPrefix(f.name, "dmg ")
}))

func openImage(name string) (opened, error) {
	i, err := disk.OpenImage(name)
	if err != nil {
		return opened{}, err
	}
	return opened{i, i.Size(), i.Close}, nil
}

// converted returns the format that qemu-img makes with some options.
func converted(name string, options ...string) form {
	return form{name, func(ctx context.Context, d *made) (opened, error) {
		to := filepath.Join(d.dir, "image.qcow2")
		args := append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...), d.raw, to)
		if _, err := rig.Output(ctx, d.dir, "qemu-img", args...); err != nil {
			return opened{}, err
		}
		return d.qcow2(ctx, to)
	}}
}

// qcow2 opens an image that qemu-img finds equal to the raw file. It is removed when it is closed.
func (d *made) qcow2(ctx context.Context, name string) (opened, error) {
	if _, err := rig.Output(ctx, d.dir, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", d.raw, name); err != nil {
		return opened{}, err
	}
	o, err := openImage(name)
	if err != nil {
		return o, err
	}
	closed := o.close
	o.close = func() error { return errors.Join(closed(), os.Remove(name)) }
	return o, nil
}

// Offsets of the differences between two states of a disk.
const (
	stride = 16 << 20
	piece  = 1 << 20
)

// older writes a copy of the raw file in which the chunks at every step are different, from the one
// numbered first.
func (d *made) older(name string, first, step int64) (string, error) {
	to := filepath.Join(d.dir, name)
	if err := copySparse(to, d.raw); err != nil {
		return "", err
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	st, err := f.Stat()
	noise, b := rand.NewChaCha8([32]byte{9}), make([]byte, piece)
	for k := first; err == nil && k*stride+piece <= st.Size(); k += step {
		_, _ = noise.Read(b)
		_, err = f.WriteAt(b, k*stride)
	}
	return to, errors.Join(err, f.Close())
}

// chain creates an image on an image on an image: the lowest has noise at many offsets, which the
// second corrects in part, and the highest completely.
func chain(ctx context.Context, d *made) (opened, error) {
	noisy, err := d.older("noisy", 0, 1)
	if err != nil {
		return opened{}, err
	}
	qemu := func(args ...string) {
		if err == nil {
			_, err = rig.Output(ctx, d.dir, "qemu-img", args...)
		}
	}
	qemu("convert", "-f", "raw", "-O", "qcow2", noisy, "base.qcow2")
	qemu("create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", "middle.qcow2")
	if err == nil {
		err = d.mend(ctx, "middle.qcow2", 1, 2)
	}
	qemu("create", "-q", "-f", "qcow2", "-b", "middle.qcow2", "-F", "qcow2", "top.qcow2")
	if err == nil {
		err = d.mend(ctx, "top.qcow2", 0, 2)
	}
	if err != nil {
		return opened{}, err
	}
	o, err := d.qcow2(ctx, filepath.Join(d.dir, "top.qcow2"))
	return o, errors.Join(err, os.Remove(noisy))
}

// mend writes the content of the raw file into an image, by qemu-io.
func (d *made) mend(ctx context.Context, image string, first, step int64) error {
	f, err := os.Open(d.raw)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	args := []string{"-f", "qcow2", image}
	for k := first; k*stride+piece <= st.Size(); k += step {
		b := make([]byte, piece)
		if _, err := f.ReadAt(b, k*stride); err != nil {
			return err
		}
		name := fmt.Sprintf("piece%d", k)
		if err := os.WriteFile(filepath.Join(d.dir, name), b, 0o600); err != nil {
			return err
		}
		args = append(args, "-c", fmt.Sprintf("write -q -s %s %d %d", name, k*stride, piece))
	}
	_, err = rig.Output(ctx, d.dir, "qemu-io", args...)
	return err
}

const templateID = "11111111-2222-4333-8444-555555555555"

// template pushes three states of the disk to a registry, each with only its changes. It reads the
// last from the registry's storage while it runs.
func template(ctx context.Context, d *made) (_ opened, err error) {
	base := filepath.Join(d.dir, "storage")
	reg, err := registry.Open(ctx, registry.Options{Base: base, Version: "test"})
	if err != nil {
		return opened{}, err
	}
	server := httptest.NewServer(rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler)))
	stop := func() error { server.Close(); return reg.Close() }
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	first, err := d.older("first", 0, 1)
	if err != nil {
		return opened{}, err
	}
	second, err := d.older("second", 0, 2)
	if err != nil {
		return opened{}, err
	}
	if err := pushAll(ctx, server.URL, first, second, d.raw); err != nil {
		return opened{}, err
	}
	storage, err := disk.OpenStorage(base)
	if err != nil {
		return opened{}, err
	}
	t, err := storage.Open(templateID, "")
	if err != nil {
		return opened{}, errors.Join(err, storage.Close())
	}
	if len(t.Disks) != 1 || t.TemplateVersion.Tag != "v2" {
		return opened{}, errors.Join(fmt.Errorf("it has %d disks in tag %q", len(t.Disks), t.TemplateVersion.Tag),
			t.Close(), storage.Close())
	}
	closed := func() error {
		return errors.Join(t.Close(), storage.Close(), stop(), os.Remove(first), os.Remove(second), os.RemoveAll(base))
	}
	return opened{t.Disks[0], t.Disks[0].Size, closed}, nil
}

// pushAll pushes states of a disk as one tag after the other.
func pushAll(ctx context.Context, url string, states ...string) error {
	c, err := transfer.New(transfer.Options{BaseURL: url, IdleTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	var parent *transfer.PushParent
	for n, name := range states {
		o := transfer.PushOptions{
			Request: api.PushRequest{
				ID: templateID, Name: "images", Tag: fmt.Sprintf("v%d", n),
				Config: json.RawMessage(`{"hard_drives":[{"file":"disk.img"}]}`),
			},
			Files: []transfer.PushFile{
				{Name: "disk.img", Kind: api.FileDisk, Disk: &diskfile.Disk{Path: name}, Parent: parent},
			},
			LayerDigests: map[string]string{},
		}
		if _, err := c.Push(ctx, o); err != nil {
			return fmt.Errorf("push %s: %w", name, err)
		}
		parent = &transfer.PushParent{ChainID: o.LayerDigests["disk.img"], Disk: &diskfile.Disk{Path: name}}
	}
	return nil
}

// copySparse copies a file and leaves out its zeros.
func copySparse(to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return writeSparse(to, f)
}

// writeSparse copies a reader, and leaves holes where it is zero.
func writeSparse(to string, r io.Reader) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	b, zero, at := make([]byte, 64<<10), make([]byte, 64<<10), int64(0)
	for err == nil {
		var n int
		n, err = io.ReadFull(r, b)
		if string(b[:n]) != string(zero[:n]) {
			if _, err := f.WriteAt(b[:n], at); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		at += int64(n)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = f.Truncate(at)
	}
	return errors.Join(err, f.Close())
}
