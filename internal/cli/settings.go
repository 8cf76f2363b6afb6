package cli

import (
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/config"
)

// Streams are the standard streams of a command: the result goes to Out, messages go to Err.
type Streams struct {
	In       io.Reader // nil: nothing to read
	Out, Err io.Writer
}

// Columns returns the width of the terminal that a stream is; 0 when it is none.
func Columns(stream any) int {
	f, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80 // a terminal of unknown width
	}
	return int(size.Col)
}

// Rows returns the height of the terminal that a stream is; 24 when it is unknown or not a terminal.
func Rows(stream any) int {
	const usual = 24
	f, ok := stream.(*os.File)
	if !ok {
		return usual
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Row == 0 {
		return usual
	}
	return int(size.Row)
}

// AddFlags puts the flags of a table and those that every command with settings has on a
// command.
func AddFlags(fs *pflag.FlagSet, table config.Table) {
	table.AddFlags(fs)
	fs.String("config", "", "settings file with KEY=value lines")
	fs.Bool("print-config", false, "print the effective settings with their sources (secrets masked), and exit")
	MarkGlobal(fs, "config", "print-config")
	markConnection(fs, table)
}

// Sources returns where a command's settings come from.
func Sources(fs *pflag.FlagSet) config.Sources {
	file, _ := fs.GetString("config")
	return config.Sources{Env: os.LookupEnv, Flags: fs, File: file}
}

// PrintConfig shows the settings of a command.
func PrintConfig(w io.Writer, table config.Table, src config.Sources) error {
	values, err := config.Load(table, src)
	if err != nil {
		return err
	}
	return values.Print(w)
}
