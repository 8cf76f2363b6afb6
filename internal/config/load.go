package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// Origin is the source of a value.
type Origin string

// The origins, the strongest first.
const (
	FromFlag    Origin = "flag"
	FromEnv     Origin = "env"
	FromFile    Origin = "file"
	FromDefault Origin = "default"
)

// Sources are the sources of values for Load. The zero value has defaults only.
type Sources struct {
	Env   func(key string) (string, bool) // os.LookupEnv; nil for none
	Flags *pflag.FlagSet                  // parsed, with the flags of the table; nil for none
	File  string                          // KEY=value lines; "" for none, but a named file must exist
	// KEY=value of the whole environment: SVC_ keys that the table lacks are refused; nil: not checked
	Vars         []string
	FileDefaults map[string]string // values by key that apply where File has none; nil for none
	Stdin        io.Reader         // the standard input, for a secret; nil for none
}

// FromFile returns the value of a setting in the file; "" when the file or the value is missing.
func (s Sources) FromFile(table Table, key string) (string, error) {
	if s.File == "" {
		return "", nil
	}
	values, err := readFile(s.File, table)
	return values[key], err
}

// maxSecretBytes bounds a file that holds a secret, in bytes.
const maxSecretBytes = 64 << 10

// Load finds the value of every setting: flag before environment before file before
// default. An empty value in the environment or the file means not given. The error
// is one line that names the setting, its value (masked when secret) and the form it
// must have.
func Load(table Table, src Sources) (*Values, error) {
	l := loader{env: src.Env, flags: src.Flags, stdin: src.Stdin}
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
	l.file = mergeMissing(l.file, src.FileDefaults)
	if err := refuseUnknown(table, src.Vars); err != nil {
		return nil, err
	}
	v := &Values{table: table, values: make(map[string]value, len(table))}
	for _, s := range table {
		found, err := l.findValue(s)
		if err != nil {
			return nil, err
		}
		if err := checkValue(s, found); err != nil {
			return nil, err
		}
		v.values[s.Key] = found
	}
	v.defaultsWithoutAuth()
	return v, nil
}

// mergeMissing returns the values of more and, where it has none, those of less.
func mergeMissing(more, less map[string]string) map[string]string {
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
	stdin io.Reader
}

// findValue looks for one setting in every source.
func (l *loader) findValue(s Setting) (value, error) {
	text, path, err := l.fromFlag(s)
	if err != nil || text != nil {
		return value{deref(text), FromFlag}, err
	}
	if path != "" {
		secret, err := ReadSecret(path, l.stdin)
		if err != nil {
			return value{}, fmt.Errorf("--%s %s: %w", s.FileFlag, path, err)
		}
		return value{secret, FromFlag}, nil
	}
	for _, origin := range []Origin{FromEnv, FromFile} {
		text, err := l.fromSource(s, origin)
		if err != nil {
			return value{}, err
		}
		if text != "" {
			return value{text, origin}, nil
		}
	}
	return value{s.Default, FromDefault}, nil
}

// fromFlag returns the value of a setting on the command line: a text, or the file that has it.
func (l *loader) fromFlag(s Setting) (text *string, file string, err error) {
	if l.flags == nil {
		return nil, "", nil
	}
	if f := l.flags.Lookup(s.Flag); f != nil && f.Changed {
		said := f.Value.String()
		text = &said
	}
	if f := l.flags.Lookup(s.FileFlag); s.FileFlag != "" && f != nil && f.Changed {
		if file = f.Value.String(); file == "" {
			return nil, "", fmt.Errorf("--%s: file name is empty", s.FileFlag)
		}
	}
	if text != nil && file != "" {
		return nil, "", fmt.Errorf("--%s and --%s are mutually exclusive", s.Flag, s.FileFlag)
	}
	return text, file, nil
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// fromSource returns the value of a setting in one source, read through Key_FILE when it is a secret; ""
// when it has none.
func (l *loader) fromSource(s Setting, origin Origin) (string, error) {
	text := l.lookup(s.Key, origin)
	if text == "" && s.Alias != "" {
		text = l.lookup(s.Alias, origin)
	}
	if !s.Kind.isSecret() {
		return text, nil
	}
	path := l.lookup(s.Key+fileSuffix, origin)
	switch {
	case path == "":
		return text, nil
	case text != "":
		return "", fmt.Errorf("%s and %s%s are mutually exclusive", s.Key, s.Key, fileSuffix)
	}
	secret, err := readSecret(path, s.Private)
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

// ReadSecret reads a secret from a file that only its owner may read or change; "-" is in, the
// standard input, which may be nil. Neither path nor secret is in its errors.
func ReadSecret(path string, in io.Reader) (string, error) {
	if path != "-" {
		return readSecret(path, true)
	}
	if in == nil {
		return "", errors.New("standard input is not available")
	}
	raw, err := readLimited(in, maxSecretBytes)
	if err != nil {
		return "", err
	}
	return trimSecret(raw)
}

// CheckPrivate rejects a file that users other than its owner may read or change. Other kinds of
// files, such as a pipe, are not checked.
func CheckPrivate(f interface{ Stat() (fs.FileInfo, error) }) error {
	info, err := f.Stat()
	if err != nil {
		return withoutPath(err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("file is accessible by other users (mode %#o): run chmod 600", info.Mode().Perm())
	}
	return nil
}

// readSecret reads a secret of a file, which may have to be private.
func readSecret(path string, private bool) (string, error) {
	var checks []func(*os.File) error
	if private {
		checks = append(checks, func(f *os.File) error { return CheckPrivate(f) })
	}
	raw, err := readBounded(path, maxSecretBytes, checks...)
	if err != nil {
		return "", err
	}
	return trimSecret(raw)
}

// trimSecret trims one newline, which editors add.
func trimSecret(raw []byte) (string, error) {
	secret := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	if secret == "" {
		return "", errors.New("file is empty")
	}
	return secret, nil
}

// readBounded reads a whole file that must not be larger than limit bytes. Neither
// the path nor the content is in its errors.
func readBounded(path string, limit int64, checks ...func(*os.File) error) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer func() { _ = f.Close() }()
	for _, check := range checks {
		if err := check(f); err != nil {
			return nil, err
		}
	}
	return readLimited(f, limit)
}

func readLimited(from io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case int64(len(raw)) > limit:
		return nil, fmt.Errorf("file is larger than %d bytes", limit)
	}
	return raw, nil
}

// withoutPath drops the operation and the path of a file error: the caller names the file.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// checkValue checks a value against its kind and its own check.
func checkValue(s Setting, v value) error {
	if v.text == "" && s.Kind.allowsEmpty() {
		return nil
	}
	kind := kinds[s.Kind]
	err := kind.parse(v.text)
	isSentence := false
	if err != nil {
		if _, isSentence = errors.AsType[sentenceError](err); !isSentence {
			err = errors.New(kind.form)
		}
	} else if s.Check != nil {
		err = s.Check(v.text)
		_, isSentence = errors.AsType[sentenceError](err)
	}
	switch {
	case err == nil:
		return nil
	case isSentence:
		return fmt.Errorf("%s: %w (%s)", maskedText(s, v), err, originOf(s, v))
	}
	return fmt.Errorf("%s must be %w (%s)", maskedText(s, v), err, originOf(s, v))
}

// sentenceError is the error of a check that is a whole sentence, instead of the form which the value
// must have.
type sentenceError struct{ error }

func (s sentenceError) Unwrap() error { return s.error }

// secretMask replaces a secret wherever settings are shown.
const secretMask = "********"

// userInfo is from the first to the last user and password in a text of addresses; passwords may have any character.
var userInfo = regexp.MustCompile(`//.*@`)

// maskedText is a setting as errors name it, without the passwords in it.
func maskedText(s Setting, v value) string {
	if s.Kind.isSecret() {
		return s.Key + "=" + secretMask
	}
	return fmt.Sprintf("%s=%q", s.Key, userInfo.ReplaceAllString(v.text, "//"))
}

func originOf(s Setting, v value) string {
	return map[Origin]string{
		FromFlag: "from flag --" + s.Flag, FromEnv: "from the environment",
		FromFile: "from the configuration file", FromDefault: "default",
	}[v.origin]
}
