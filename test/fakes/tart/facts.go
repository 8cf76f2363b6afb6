package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

func init() {
	for name, show := range facts {
		fakeguest.AddShim(name, fact(show))
	}
}

// fact is a program that prints something of the guest's machine.
func fact(show func(c config, args []string)) func(context.Context, []string) int {
	return func(_ context.Context, args []string) int {
		v := &vm{dir: fakeguest.VMDir()}
		c, err := v.config() // this process does not have the lock
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		show(c, args)
		return 0
	}
}

// facts are programs of macOS by name; forms of their outputs as far as drivers and tests read them.
var facts = map[string]func(c config, args []string){
	"sysctl": func(c config, args []string) {
		values := map[string]any{
			"hw.ncpu": c.CPUCount, "hw.logicalcpu": c.CPUCount, "hw.memsize": c.MemorySize,
			"kern.hostname": "Admins-Virtual-Machine.local", "kern.osversion": "23F79",
		}
		for _, name := range args {
			if value, found := values[name]; found {
				fmt.Println(value)
			}
		}
	},
	"ifconfig": func(c config, _ []string) {
		fmt.Printf("en0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500\n\tether %s\n"+
			"\tinet %s netmask 0xffffff00\n\tstatus: active\n", c.MACAddress, fakeguest.AddressInGuest())
	},
	"sw_vers": func(_ config, args []string) {
		values := map[string]string{"-productName": "macOS", "-productVersion": "14.5", "-buildVersion": "23F79"}
		for _, name := range args {
			fmt.Println(values["-"+strings.TrimLeft(name, "-")])
		}
	},
	"uname": func(_ config, args []string) {
		values := map[string]string{"-s": "Darwin", "-m": "arm64", "-r": "23.5.0", "-sm": "Darwin arm64"}
		fmt.Println(values[strings.Join(append(args, "-s")[:max(1, len(args))], " ")])
	},
}
