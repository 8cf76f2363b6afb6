package hostscan

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Limits of the log; older files are removed.
const (
	maxLogMegabytes = 10
	logFiles        = 3 // besides the current one
)

// serviceLog is the log of the service.
type serviceLog struct {
	*slog.Logger
	level *slog.LevelVar
	close func()
}

// openServiceLog opens the log: in a file, or on the error stream.
func openServiceLog(s settings, stderr io.Writer) (*serviceLog, error) {
	j := &serviceLog{level: &slog.LevelVar{}, close: func() {}}
	to := stderr
	if s.LogToFile {
		if err := checkLogFile(s.LogFile); err != nil {
			return nil, fmt.Errorf("log-file: %w", err)
		}
		file := &lumberjack.Logger{Filename: s.LogFile, MaxSize: maxLogMegabytes, MaxBackups: logFiles}
		to, j.close = file, func() { _ = file.Close() }
	}
	l, err := s.logLevel()
	j.level.Set(l)
	j.Logger = slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: j.level})).With("service", "hostscan")
	return j, err
}

// checkLogFile reports immediately why a log file cannot be written.
func checkLogFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
