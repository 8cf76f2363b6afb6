package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// installMethod is how a package arrives that no package manager installs here. The first units of
// each kind arrive by one method each.
type installMethod struct {
	name string
	come func(ctx context.Context, w *wayUnit) error
}

// wayUnit is a unit with its method.
type wayUnit struct {
	unit
	s    *stage
	rec  *record
	base string // directory of all of them
	how  string
	from string // where it is prepared, with its files
	to   string // its destination, which does not exist yet
}

var ways = []installMethod{
	{"mv", func(ctx context.Context, w *wayUnit) error {
		began := time.Now()
		return w.come(ctx, began, "mv", w.from, w.to)
	}},
	{"tar", func(ctx context.Context, w *wayUnit) error {
		pack := w.from + ".tar.gz"
		if _, err := w.s.sh(ctx, w.from, "tar", "-czf", pack, "."); err != nil {
			return err
		}
		if err := os.Mkdir(w.to, 0o755); err != nil {
			return err
		}
		return w.come(ctx, time.Time{}, "tar", "-xzf", pack, "-C", w.to)
	}},
	{"unzip", func(ctx context.Context, w *wayUnit) error {
		pack := w.from + ".zip"
		if _, err := w.s.sh(ctx, w.from, "zip", "-qr", pack, "."); err != nil {
			return err
		}
		return w.come(ctx, time.Time{}, "unzip", "-q", pack, "-d", w.to)
	}},
	{"hard links", func(ctx context.Context, w *wayUnit) error {
		return w.come(ctx, time.Time{}, "cp", "-al", w.from, w.to)
	}},
	{"store with links", func(ctx context.Context, w *wayUnit) error {
		link := w.to
		w.to = filepath.Join(w.base, "store", w.kind)
		if err := os.MkdirAll(filepath.Dir(w.to), 0o755); err != nil {
			return err
		}
		if err := w.come(ctx, time.Time{}, "cp", "-a", w.from, w.to); err != nil {
			return err
		}
		return os.Symlink(w.to, link)
	}},
	{"upgraded", copied},
	{"removed", copied},
}

func copied(ctx context.Context, w *wayUnit) error {
	return w.come(ctx, time.Time{}, "cp", "-a", w.from, w.to)
}

// come runs the command that installs the unit, and records it.
func (w *wayUnit) come(ctx context.Context, since time.Time, args ...string) error {
	if _, err := w.s.sh(ctx, "", args...); err != nil {
		return err
	}
	return w.rec.installed(w.how, since, w.at(w.to))
}

// onWay prepares a unit for a method, or finds it again.
func (s *stage) onWay(rec *record, base, kind string, i int) *wayUnit {
	name := fmt.Sprintf("%d-%s", i, kind)
	return &wayUnit{units(kind)[i], s, rec, base, ways[i].name, s.back("ways", filepath.Base(base),
		name), filepath.Join(base, "ways", name)}
}

func byWays(ctx context.Context, s *stage, rec *record) error { return s.byWays(ctx, rec, s.host()) }

// byWays installs units of all kinds by all methods in a directory.
func (s *stage) byWays(ctx context.Context, rec *record, base string) error {
	if err := os.MkdirAll(filepath.Join(base, "ways"), 0o755); err != nil {
		return err
	}
	for i, way := range ways {
		for _, kind := range kinds {
			w := s.onWay(rec, base, kind, i)
			if err := writeTree(w.from, w.files()); err != nil {
				return err
			}
			if err := way.come(ctx, w); err != nil {
				return fmt.Errorf("%s by %s: %w", kind, way.name, err)
			}
		}
	}
	return nil
}

func changeWays(ctx context.Context, s *stage, rec *record) error {
	return s.changeWays(ctx, rec, s.host())
}

// changeWays upgrades one unit of each kind and removes another.
func (s *stage) changeWays(ctx context.Context, rec *record, base string) error {
	for _, kind := range kinds {
		if err := s.onWay(rec, base, kind, len(ways)-2).upgrade(ctx); err != nil {
			return fmt.Errorf("upgrading %s: %w", kind, err)
		}
		w := s.onWay(rec, base, kind, len(ways)-1)
		if _, err := s.sh(ctx, "", "rm", "-rf", w.to); err != nil {
			return err
		}
		rec.removed("rm", time.Now(), w.at(w.to))
	}
	return nil
}

// upgrade replaces a unit by the next version, as its package manager does: next to the old one,
// which is then removed, or in its place.
func (w *wayUnit) upgrade(ctx context.Context) error {
	old := w.at(w.to)
	next := w.unit
	next.version = bumped(w.version)
	from := w.from + "-next"
	if err := writeTree(from, next.files()); err != nil {
		return err
	}
	began := time.Now()
	switch {
	case next.tells() != w.tells():
		if _, err := w.s.sh(ctx, "", "cp", "-a", from+"/.", w.to); err != nil {
			return err
		}
		for name := range w.files() {
			if _, kept := next.files()[name]; !kept {
				if err := os.Remove(filepath.Join(w.to, name)); err != nil {
					return err
				}
			}
		}
	case w.kind == "macos-app":
		app := "Applications/" + w.name + ".app"
		if _, err := w.s.sh(ctx, "", "mv", filepath.Join(w.to, app), w.from+"-old.app"); err != nil {
			return err
		}
		if _, err := w.s.sh(ctx, "", "mv", filepath.Join(from, app), filepath.Join(w.to, app)); err != nil {
			return err
		}
	default:
		for name := range next.files() {
			to := filepath.Join(w.to, name)
			if _, err := w.s.sh(ctx, "", "cp", filepath.Join(from, name), to+".part"); err != nil {
				return err
			}
			if err := os.Rename(to+".part", to); err != nil {
				return err
			}
		}
	}
	w.rec.removed("the next version", time.Now(), old)
	return w.rec.installed("an upgrade", began, next.at(w.to))
}

var number = regexp.MustCompile(`(\d+)(\D*)$`)

// bumped returns the next version: its last number is one more.
func bumped(version string) string {
	m := number.FindStringSubmatchIndex(version)
	n, err := strconv.Atoi(version[m[2]:m[3]])
	if err != nil {
		return version + ".1"
	}
	return version[:m[2]] + strconv.Itoa(n+1) + version[m[4]:]
}
