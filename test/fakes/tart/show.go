package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// printJSON prints pretty JSON; readers must not rely on the order of keys.
func printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	return nil
}

// printTable prints texts in columns, which begin with their names.
func printTable(columns []string, rows ...map[string]any) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, row := range rows {
		for i, column := range columns {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, row[column])
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func (c *call) print(columns []string, rows []map[string]any, single bool) error {
	switch format := c.value("text", "format"); {
	case format == "json" && single:
		return printJSON(rows[0])
	case format == "json":
		return printJSON(rows)
	case format != "text":
		return usage(c.verb, "The value '%s' is invalid for '--format <format>'", format)
	}
	return printTable(columns, rows...)
}

// listVMs fails when one VM cannot be read.
func listVMs(_ context.Context, c *call) error {
	vms, err := c.all()
	if err != nil || c.value("local", "source") != "local" {
		return err
	}
	rows := []map[string]any{}
	for _, v := range vms {
		if _, err := v.config(); err != nil {
			return fail(1, "Error: The data couldn’t be read: %v", err)
		}
		row, err := listed(v)
		if err != nil {
			return err
		}
		if c.has("quiet") || c.has("q") {
			fmt.Println(v.name)
		}
		rows = append(rows, row)
	}
	if c.has("quiet") || c.has("q") {
		return nil
	}
	return c.print([]string{"Source", "Name", "Disk", "Size", "Accessed", "State"}, rows, false)
}

func listed(v *vm) (map[string]any, error) {
	state, err := v.state()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(v.path(diskFile))
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"Source": "local", "Name": v.name, "Disk": info.Size() / gigabyte, "Size": v.usedBytes() / gigabyte,
		"Accessed": info.ModTime().UTC().Format(time.RFC3339), "Running": state == "running", "State": state,
	}, nil
}

func (v *vm) usedBytes() int64 {
	return allocatedBytes(v.path(diskFile)) + allocatedBytes(v.path(nvramFile))
}

func showVM(_ context.Context, c *call) error {
	v, err := c.existing(c.name())
	if err != nil {
		return err
	}
	config, err := v.config()
	if err != nil {
		return err
	}
	row, err := listed(v)
	if err != nil {
		return err
	}
	return c.print([]string{"OS", "CPU", "Memory", "Disk", "DiskFormat", "Size", "Display", "Running", "State"},
		[]map[string]any{{
			"OS": config.OS, "CPU": config.CPUCount, "Memory": config.MemorySize >> 20, "Disk": row["Disk"],
			"DiskFormat": config.DiskFormat, "Size": fmt.Sprintf("%.3f", float64(v.usedBytes())/gigabyte),
			"Display": config.Display.String(), "Running": row["Running"], "State": row["State"],
		}}, true)
}
