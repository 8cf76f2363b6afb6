package config

import (
	"strconv"

	"github.com/spf13/pflag"
)

// Setting is one line of a service's table.
type Setting struct {
	Key     string // name in the environment and in the file, such as SVC_LISTEN_ADDR
	Flag    string // name on the command line, such as listen-addr
	Default string // in the form of its kind; "" is valid for textual kinds only
	Kind    Kind
	Help    string // one line for --help
	// nil, or returns what the value must be; never called with ""; must not repeat a secret
	Check         func(string) error
	Alias         string // alias in the environment and in the file; "" for none
	FileFlag      string // of a secret: a flag that names a private file with it; "" for none
	Private       bool   // of a secret: files that Key_FILE names must be private too
	NoAuthDefault string // default while authentication is off; "" means Default
}

// Table is the settings of one service, in the order in which they are printed.
type Table []Setting

// Kind is the form of a value.
type Kind int

// The kinds. String, Addr, Path, Secret and SecretText are read with Values.String.
const (
	String     Kind = iota // any text
	Int                    // a whole number
	Bool                   // true or false
	Duration               // Go form (90s, 1m) or a plain number of seconds
	Size                   // a number of bytes with a unit: 1024B 10KB 140MB 45GB
	Addr                   // host:port to listen on; an empty host is every interface
	Path                   // a file or directory
	Secret                 // text that is never shown; Key_FILE may name a file that holds it
	List                   // texts separated by commas
	Days                   // a plain number of days, or a duration
	Megabytes              // a plain number of MiB, or a size
	SecretText             // Secret of any number of lines
)

// kinds maps each kind to its name in --help, its form in error texts and its parser.
var kinds = map[Kind]struct {
	name, form string
	parse      func(string) error
}{
	String:   {"string", "a text", checkLine},
	Int:      {"int", "a whole number", parserCheck(strconv.Atoi)},
	Bool:     {"bool", "true or false", parserCheck(strconv.ParseBool)},
	Duration: {"duration", "a duration such as 90s, 1m or 2h, or a number of seconds", parserCheck(ParseDuration)},
	Size:     {"size", "a size such as 1024B, 10KB, 140MB or 45GB", parserCheck(ParseSize)},
	Addr:     {"address", "an address host:port such as :8090 or 127.0.0.1:8090", checkAddr},
	Path:     {"path", "a path", checkLine},
	Secret:   {"secret", "a text", checkLine},
	List:     {"list", "texts separated by commas", checkLine},

	Days:      {"days", "a number of days such as 7, or a duration such as 36h", parserCheck(ParseDays)},
	Megabytes: {"megabytes", "a number of MiB such as 1024, or a size such as 4GB", parserCheck(ParseMegabytes)},

	SecretText: {"secret", "a text", checkText},
}

// isSecret reports whether values of the kind are never shown.
func (k Kind) isSecret() bool { return k == Secret || k == SecretText }

// parserCheck turns a parser into a check of a form.
func parserCheck[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

// allowsEmpty reports whether the empty text is a value of the kind.
func (k Kind) allowsEmpty() bool {
	return k != Int && k != Bool && k != Duration && k != Size && k != Days && k != Megabytes
}

// AddFlags declares a flag for every setting. Values given on the command line are
// checked by Load together with those of the other sources.
func (t Table) AddFlags(fs *pflag.FlagSet) {
	for _, s := range t {
		f := fs.VarPF(&flagValue{text: s.Default, kind: s.Kind}, s.Flag, "", s.help())
		if s.Kind == Bool {
			f.NoOptDefVal = "true"
		}
		if s.FileFlag != "" {
			fs.VarP(&flagValue{kind: Path}, s.FileFlag, "", "private file with the value of --"+s.Flag+
				"; - reads standard input")
		}
	}
}

// help returns the setting's text for --help.
func (s Setting) help() string {
	if s.NoAuthDefault == "" {
		return s.Help + " [" + s.Key + "]"
	}
	return s.Help + "; default without authentication: " + s.NoAuthDefault + " [" + s.Key + "]"
}

// flagValue keeps the text of a flag until Load parses it.
type flagValue struct {
	text string
	kind Kind
}

var _ pflag.Value = (*flagValue)(nil)

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return kinds[v.kind].name }

func (v *flagValue) Set(text string) error {
	v.text = text
	return nil
}

// Has reports whether the table has a setting of that key.
func (t Table) Has(key string) bool {
	_, ok := t.find(key)
	return ok
}

// find returns the setting of a key.
func (t Table) find(key string) (Setting, bool) {
	for _, s := range t {
		if s.Key == key {
			return s, true
		}
	}
	return Setting{}, false
}
