package imagescan

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/obs"
)

// openLog opens the log file of the configuration; "" logs nothing.
func openLog(path string) (*slog.Logger, func(), error) {
	if path == "" {
		return slog.New(slog.DiscardHandler), func() {}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("log-file: %w", err)
	}
	log, err := obs.Logger(f, "info", "imagescan")
	return log, func() { _ = f.Close() }, err
}

// decimal is the number that a flag of 32 bits was given as: 7.1, not 7.099999904.
func decimal(f float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return v
}

// globEscape keeps the signs of patterns in a path from being some.
func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(filepath.ToSlash(path))
}

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
