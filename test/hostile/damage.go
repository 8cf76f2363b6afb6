package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/test/rig"
)

// damage is files of services that are not what was written.
var damage = family{name: "damage", site: arrangement{none: true}, attacks: []attack{
	{"flipped bits and cuts in the store", damagedStore, false},
	{"flipped bits and cuts in layers", damagedLayers, false},
}}

// damagedStore damages each file of a stopped store in turn. A start names the file and the newest backup.
func damagedStore(ctx context.Context, s *site, o *outcome) {
	backups := filepath.Join(s.dir, "backups")
	own := &site{
		arrangement: arrangement{nodes: 2, settings: map[string]string{"SVC_BACKUP_DIR": backups}},
		dir:         filepath.Join(s.dir, "store"), programs: s.programs,
	}
	defer func() { o.check(own.close()) }()
	if err := errors.Join(os.MkdirAll(backups, 0o700), own.open(ctx)); err != nil {
		o.check(err)
		return
	}
	own.bystand(ctx).end(o)
	backup := filepath.Join(backups, "buildyard-20260102T000000Z.backup")
	if _, err := rig.Output(ctx, "", "env", "SVC_CONTROLLER="+own.controller,
		"SVC_CLIENT_ROOT_TOKEN_FILE="+filepath.Join(own.dir, "root.token"),
		s.programs.Path("buildyard"), "backup", backup); err != nil {
		o.check(err)
		return
	}
	o.check(own.close())
	files, err := filesOf(filepath.Join(own.dataDir(), "store", "etcd"))
	o.check(err)
	for _, file := range files {
		for _, d := range damages {
			if ctx.Err() == nil {
				own.damageStart(ctx, o, file, d, backups)
			}
		}
	}
	if err := own.boot(ctx); err != nil {
		o.fault("the whole store does not start: %v", err)
		return
	}
	o.effect("%d files damaged in %d ways, the whole store started again", len(files), len(damages))
}

// damages are the changes of a file, at a share of its length.
var damages = []struct {
	name   string
	change func(text []byte) []byte
}{
	{"a bit near its begin", func(t []byte) []byte { t[len(t)/50] ^= 1; return t }},
	{"a bit in the middle", func(t []byte) []byte { t[len(t)/2] ^= 16; return t }},
	{"a bit at its end", func(t []byte) []byte { t[len(t)-1] ^= 128; return t }},
	{"its second half cut", func(t []byte) []byte { return t[:len(t)/2] }},
}

// damageStart damages a file, starts the services and puts the file back.
func (s *site) damageStart(ctx context.Context, o *outcome, file string, d struct {
	name   string
	change func(text []byte) []byte
}, backups string,
) {
	whole, err := os.ReadFile(file)
	if err != nil || len(whole) == 0 {
		o.check(err)
		return
	}
	seal, sealed := s.seal()
	defer func() {
		o.check(os.WriteFile(file, whole, 0o600))
		if sealed {
			o.check(os.WriteFile(s.sealFile(), seal, 0o600))
		}
	}()
	o.check(os.WriteFile(file, d.change(append([]byte(nil), whole...)), 0o600))
	o.check(os.Truncate(s.up.Log, 0))
	if err := s.boot(ctx); err == nil {
		o.take("started")
		o.fault("a store starts with %s of %s changed", d.name, filepath.Base(file))
		o.check(s.up.End())
		return
	}
	said := strings.TrimSpace(s.up.Tail())
	named := strings.Contains(said, filepath.Base(file)) && strings.Contains(said, "buildyard restore "+backups+"/")
	if lines := strings.Count(said, "\n") + 1; !named || lines > 1 || strings.Contains(said, "goroutine ") {
		o.fault("%s of %s changed: %d lines: %.400s", d.name, filepath.Base(file), lines, said)
	}
	o.refuse("a line that names the file")
}

func (s *site) sealFile() string { return filepath.Join(s.dataDir(), "store", "sealed") }

func (s *site) seal() ([]byte, bool) {
	text, err := os.ReadFile(s.sealFile())
	return text, err == nil
}

// filesOf returns the files below a directory that hold something.
func filesOf(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// damagedLayers damages the layer of a template. A pull reports that, and other templates are
// served.
func damagedLayers(ctx context.Context, s *site, o *outcome) {
	own := &site{arrangement: arrangement{nodes: 2}, dir: filepath.Join(s.dir, "layers"), programs: s.programs}
	defer func() { o.check(own.close()) }()
	if err := own.open(ctx); err != nil {
		o.check(err)
		return
	}
	for _, d := range damages {
		before, err := filesOf(filepath.Join(own.storage(), "images_dir"))
		o.check(err)
		name := "damaged " + uuid.NewString()
		id, err := own.push(ctx, "", name, "v1")
		if err != nil {
			o.check(err)
			return
		}
		after, err := filesOf(filepath.Join(own.storage(), "images_dir"))
		o.check(err)
		for _, file := range after {
			if !strings.Contains(strings.Join(before, "\n"), file) {
				text, err := os.ReadFile(file)
				o.check(err)
				o.check(os.WriteFile(file, d.change(text), 0o600))
			}
		}
		if err := errors.Join(own.up.End(), own.boot(ctx)); err != nil {
			o.fault("the service does not start with a damaged layer: %v", err)
			return
		}
		switch text, err := own.pull(ctx, id); {
		case err == nil && bytes.Equal(text, disk(name, "v1")):
			o.take("pulled whole") // what is changed is not needed
		case err == nil:
			o.take("pulled")
			o.fault("a template is pulled with other content: %s", d.name)
		default:
			o.refuse("the pull names layer and tag")
			if !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "v1") {
				o.fault("a pull with %s changed says %v", d.name, err)
			}
		}
	}
	for id, name := range map[string]string{own.a: "template 1", own.b: "template 2"} {
		if text, err := own.pull(ctx, id); err != nil || !bytes.Equal(text, disk(name, "v2")) {
			o.fault("another template cannot be pulled: %v", err)
		}
	}
	own.bystand(ctx).end(o)
	o.effect("%d layers damaged", len(damages))
}
