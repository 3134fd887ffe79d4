// Renders a template as Ollama does: Go's own library, its options, and the values by Ollama's names.
package main

import (
	"encoding/json"
	"os"
	"strings"
	"text/template"
)

type Object map[string]any

func (o Object) String() string { text, _ := json.Marshal(o); return string(text) }

type Function struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Parameters  Object `json:"parameters,omitempty"`
	Arguments   Object `json:"arguments,omitempty"`
}

func (f Function) String() string { text, _ := json.Marshal(f); return string(text) }

type Call struct {
	Function Function `json:"function"`
}

type Message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	ToolCalls []Call `json:"tool_calls"`
}

func main() {
	var asked struct {
		Template string
		Messages []*Message
		Tools    []Call
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	var system []string
	for _, message := range asked.Messages {
		if message.Role == "system" {
			system = append(system, message.Content)
		}
	}
	parsed := template.Must(template.New("").Option("missingkey=zero").Parse(asked.Template))
	values := map[string]any{
		"System": strings.Join(system, "\n\n"), "Messages": asked.Messages, "Tools": asked.Tools, "Response": "",
	}
	if err := parsed.Execute(os.Stdout, values); err != nil {
		panic(err)
	}
}
