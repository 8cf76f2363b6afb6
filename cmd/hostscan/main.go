// Command hostscan scans a host for vulnerable packages, and controls the service that does.
package main

import (
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/hostscan"
)

func main() { cli.Main(hostscan.Main) }
