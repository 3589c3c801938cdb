"""Descriptions of machines that write themselves: what drivers and the system say, as a cluster file.

collect    what a machine says, raw (a script that needs no package)
smi_xml, topo, nccl, network    readers of outputs; facts: what they come to
links, fabric, cards, bases     from facts to figures of the data bases
cluster    the file, with comments that say where each figure is from
hosts      other machines, over ssh or by ranks; measure: timed links
command    the command line; auto: device_info="auto" of the client
"""
