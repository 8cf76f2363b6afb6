package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// Origin says where a value came from.
type Origin string

// The origins, the strongest first.
const (
	FromFlag    Origin = "flag"
	FromEnv     Origin = "env"
	FromFile    Origin = "file"
	FromDefault Origin = "default"
)

// Sources are the places where Load looks. The zero value has defaults only.
type Sources struct {
	Env   func(key string) (string, bool) // os.LookupEnv; nil for none
	Flags *pflag.FlagSet                  // parsed, with the flags of the table; nil for none
	File  string                          // KEY=value lines; "" for none, but a named file must exist
	Less  map[string]string               // values by key that count where File says nothing; nil for none
}

// InFile gives what the file says of a setting; "" when there is no file or it says
// nothing of it.
func (s Sources) InFile(table Table, key string) (string, error) {
	if s.File == "" {
		return "", nil
	}
	values, err := readFile(s.File, table)
	return values[key], err
}

// maxSecret bounds a file that holds a secret, in bytes.
const maxSecret = 64 << 10

// Load finds the value of every setting: flag before environment before file before
// default. An empty value in the environment or the file means not given. The error
// is one line that names the setting, its value (masked when secret) and the form it
// must have; a setting that is known but not built yet is an error too.
func Load(table Table, src Sources) (*Values, error) {
	l := loader{env: src.Env, flags: src.Flags}
	if l.env == nil {
		l.env = func(string) (string, bool) { return "", false }
	}
	if src.File != "" {
		file, err := readFile(src.File, table)
		if err != nil {
			return nil, err
		}
		l.file = file
	}
	l.file = filled(l.file, src.Less)
	if err := l.refuseUnbuilt(table); err != nil {
		return nil, err
	}
	v := &Values{table: table, values: make(map[string]value, len(table))}
	for _, s := range table {
		found, err := l.find(s)
		if err != nil {
			return nil, err
		}
		if err := check(s, found); err != nil {
			return nil, err
		}
		v.values[s.Key] = found
	}
	return v, nil
}

// filled gives the values of more and, where it has none, those of less.
func filled(more, less map[string]string) map[string]string {
	all := maps.Clone(less)
	if all == nil {
		return more
	}
	for key, text := range more {
		if text != "" {
			all[key] = text
		}
	}
	return all
}

// value is one found value and its origin.
type value struct {
	text   string
	origin Origin
}

type loader struct {
	env   func(string) (string, bool)
	flags *pflag.FlagSet
	file  map[string]string
}

// find looks for one setting in every source.
func (l *loader) find(s Setting) (value, error) {
	if l.flags != nil {
		if f := l.flags.Lookup(s.Flag); f != nil && f.Changed {
			return value{f.Value.String(), FromFlag}, nil
		}
	}
	for _, origin := range []Origin{FromEnv, FromFile} {
		text, err := l.given(s, origin)
		if err != nil {
			return value{}, err
		}
		if text != "" {
			return value{text, origin}, nil
		}
	}
	return value{s.Default, FromDefault}, nil
}

// given gives what one source says of a setting, read through Key_FILE when it is a
// secret; "" when it says nothing.
func (l *loader) given(s Setting, origin Origin) (string, error) {
	text := l.lookup(s.Key, origin)
	if text == "" && s.Also != "" {
		text = l.lookup(s.Also, origin)
	}
	if s.Kind != Secret {
		return text, nil
	}
	path := l.lookup(s.Key+fileSuffix, origin)
	switch {
	case path == "":
		return text, nil
	case text != "":
		return "", fmt.Errorf("%s and %s%s are both given: give one", s.Key, s.Key, fileSuffix)
	}
	secret, err := readSecret(path)
	if err != nil {
		return "", fmt.Errorf("%s%s=%q: %w", s.Key, fileSuffix, path, err)
	}
	return secret, nil
}

func (l *loader) lookup(key string, origin Origin) string {
	if origin == FromFile {
		return l.file[key]
	}
	text, _ := l.env(key)
	return text
}

// fileSuffix makes the name of the setting that names a file with a secret.
const fileSuffix = "_FILE"

// readSecret reads a secret and trims one newline, which editors add.
func readSecret(path string) (string, error) {
	raw, err := readBounded(path, maxSecret)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	if secret == "" {
		return "", errors.New("the file is empty")
	}
	return secret, nil
}

// readBounded reads a whole file that must not be larger than limit bytes. Neither
// the path nor the content is in its errors.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, bare(err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, bare(err)
	case int64(len(raw)) > limit:
		return nil, fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return raw, nil
}

// bare drops the operation and the path of a file error: the caller names the file.
func bare(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// check holds a value against its kind and its own check.
func check(s Setting, v value) error {
	if v.text == "" && s.Kind.textual() {
		return nil
	}
	kind := kinds[s.Kind]
	if kind.parse(v.text) != nil {
		return fmt.Errorf("%s must be %s (%s)", shown(s, v), kind.form, whence(s, v))
	}
	if s.Check == nil {
		return nil
	}
	if err := s.Check(v.text); err != nil {
		return fmt.Errorf("%s must be %w (%s)", shown(s, v), err, whence(s, v))
	}
	return nil
}

// mask stands for a secret wherever settings are shown.
const mask = "********"

func shown(s Setting, v value) string {
	if s.Kind == Secret {
		return s.Key + "=" + mask
	}
	return fmt.Sprintf("%s=%q", s.Key, v.text)
}

func whence(s Setting, v value) string {
	return map[Origin]string{
		FromFlag: "given as --" + s.Flag, FromEnv: "from the environment",
		FromFile: "from the configuration file", FromDefault: "its default",
	}[v.origin]
}
