"""Run by Python at the start of each of vllm-omni's processes, before they import anything."""

from engines.vllm_omni import plugin

plugin.prepare()
