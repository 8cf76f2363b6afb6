package main

import (
	"strconv"
	"strings"
	"time"
)

// optionKind is what follows an option.
type optionKind int

const (
	noValue optionKind = iota
	takesValue
)

// optionTable has the options of a command, without their hyphens.
type optionTable map[string]optionKind

// call is a parsed command line.
type call struct {
	*home
	verb     string
	options  map[string][]string // an option without a value has ""
	operands []string
	rest     []string
}

// parseCall reads options and operands in any order, as tart does. Wrong arguments are exit code 64.
func parseCall(h *home, name string, v verb, args []string) (*call, error) {
	c := &call{home: h, verb: name, options: map[string][]string{}}
	for len(args) > 0 {
		arg := args[0]
		if v.rest && len(c.operands) == v.operands {
			break
		}
		args = args[1:]
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			c.operands = append(c.operands, arg)
			continue
		}
		option, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		kind, known := v.options[option]
		switch {
		case !known:
			return nil, usage(name, "Unknown option '%s'", arg)
		case kind == takesValue && !hasValue && len(args) == 0:
			return nil, usage(name, "Missing value for '%s'", arg)
		case kind == takesValue && !hasValue:
			value, args = args[0], args[1:]
		}
		c.options[option] = append(c.options[option], value)
	}
	c.rest = args
	switch n := len(c.operands); {
	case v.operands >= 0 && n > v.operands:
		return nil, usage(name, "Unexpected argument '%s'", c.operands[v.operands])
	case n < v.operands, v.operands < 0 && n == 0, v.rest && len(c.rest) == 0:
		return nil, usage(name, "Missing expected argument")
	}
	return c, nil
}

func usage(verb, format string, args ...any) error {
	text := "Error: " + format + "\nUsage: tart " + verb + "\n  See 'tart " + verb + " --help' for more information."
	return fail(64, text, args...)
}

// name returns the first operand, the VM's name; "" without operands.
func (c *call) name() string {
	if len(c.operands) == 0 {
		return ""
	}
	return c.operands[0]
}

func (c *call) has(option string) bool { return len(c.options[option]) > 0 }

// value returns the last value of the first option that is given, or a default.
func (c *call) value(otherwise string, options ...string) string {
	for _, o := range options {
		if values := c.options[o]; len(values) > 0 {
			return values[len(values)-1]
		}
	}
	return otherwise
}

// number returns the value of an option as a number; 64 is the exit code if it is not one.
func (c *call) number(otherwise int, options ...string) (int, error) {
	text := c.value(strconv.Itoa(otherwise), options...)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, usage(c.verb, "The value '%s' is invalid for '--%s'", text, options[0])
	}
	return n, nil
}

// seconds returns the value of an option in seconds.
func (c *call) seconds(otherwise int, options ...string) (time.Duration, error) {
	n, err := c.number(otherwise, options...)
	return time.Duration(n) * time.Second, err
}
