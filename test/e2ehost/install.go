package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// installer installs packages and records which.
type installer struct {
	name string
	do   func(ctx context.Context, s *stage, rec *record) error
}

var installers = []installer{
	{"ways", byWays},
	{"npm install", npmInstall},
	{"go mod download", goModules},
	{"go build", goPrograms},
	{"Debian's ruby packages", debianRuby},
	{"Debian's python packages", debianPython},
	{"Debian's java packages", debianJava},
	{"gem install", gemInstall},
	{"pip install", pipInstall},
	{"cargo fetch", cargoInstall},
	{"jar", fatJars},
	{"kegs and casks", kegs},
	{"applications", apps},
	{"pods", pods},
	{"vulnerable packages", vulnerableUnits},
}

// changers upgrade and remove.
var changers = []installer{
	{"ways", changeWays},
	{"npm", npmChange},
	{"gem", gemChange},
	{"pip", pipChange},
	{"cargo", cargoChange},
	{"pods", podsChange},
}

// each runs installers, and reports failures.
func (s *stage) each(ctx context.Context, r *row, list []installer, rec *record) error {
	for _, i := range list {
		began := time.Now()
		if err := i.do(ctx, s, rec); err != nil {
			r.check(false, "%s: %v", i.name, err)
		}
		if os.Getenv("E2EHOST_TIMES") != "" {
			fmt.Fprintf(s.out, "    %s: %.1f s\n", i.name, time.Since(began).Seconds())
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
